// What one client says goes to all the others, with Socket.IO. The port is the first argument.
import { createServer } from "node:http";
import { Server } from "socket.io";

const http = createServer();
new Server(http, { transports: ["websocket"] }).on("connection", (socket) => {
  socket.on("m", (text) => socket.broadcast.emit("m", text));
});
http.listen(Number(process.argv[2]), "127.0.0.1");
