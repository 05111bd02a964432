// What a client of /pub says goes to every client of /sub, with `ws`. The port is the first argument.
import { WebSocketServer, WebSocket } from "ws";

const readers = new Set();
new WebSocketServer({ host: "127.0.0.1", port: Number(process.argv[2]) }).on("connection", (socket, request) => {
  if (request.url === "/sub") {
    readers.add(socket);
    socket.on("close", () => readers.delete(socket));
    return;
  }
  socket.on("message", (data) => {
    for (const reader of readers) {
      if (reader.readyState === WebSocket.OPEN) reader.send(data, { binary: false });
    }
  });
});
