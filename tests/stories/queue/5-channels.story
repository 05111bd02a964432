-- Inbox, topic, work queue and request-reply as patterns of consumers.

=== queue.inbox, queue.full-options | point to point: each message is consumed once by its recipient
.define
    node Actor { name: String }
    node Message { content: String, sent_at: Timestamp }
    edge inbox(recipient: Actor, message: Message)
>> SPAWN ann: Actor { name = "Ann" }
   SPAWN bob: Actor { name = "Bob" }
.session bob as #bob
.session ann as #ann
bob> his = WATCH m: Message, inbox(#self, m)
    [mode: consume, ordering: attribute(m.sent_at ASC)]
  RETURN m.content, m.sent_at
ann> hers = WATCH m: Message, inbox(#self, m)
    [mode: consume, group: "processors", ordering: attribute(m.sent_at ASC),
     delivery: reliable, ack_timeout: 30s, max_redeliveries: 3]
  RETURN m.content, m.sent_at
.events his, hers
initial (nothing)
>> SPAWN late: Message { content = "how are you?", sent_at = now() + 1s }
   LINK inbox(#bob, late)
   SPAWN m: Message { content = "hello", sent_at = now() }
   LINK inbox(#bob, m)
.events his
consumed "hello" | @2024-01-01T00:00:00.000Z (delivery d1)
consumed "how are you?" | @2024-01-01T00:00:01.000Z (delivery d2)
.events hers
(nothing)
bob> ACK #d1
deleted 1, unlinked 1
bob> ACK #d2
> MATCH m: Message RETURN COUNT(*)
0
> MATCH a: Actor RETURN COUNT(*)
2

=== queue.channel | a channel is a node that any actor may send to
.define
    node Actor { name: String }
    node Inbox { owner: Actor }
    node Message { content: String, sent_at: Timestamp }
    edge pending(inbox: Inbox, message: Message)
>> SPAWN alice: Actor { name = "Alice" }
   SPAWN alice_inbox: Inbox { owner = #alice }
   SPAWN m: Message { content = "hello", sent_at = now() }
   LINK pending(#alice_inbox, m)
> receive = WATCH m: Message, pending(#alice_inbox, m)
    [mode: consume]
    [ordering: attribute(m.sent_at)]
    RETURN m
.events receive
initial (nothing)
consumed Message #m {content: "hello", sent_at: @2024-01-01T00:00:00.000Z} (delivery d1)
> ACK #d1
> MATCH i: Inbox RETURN COUNT(*)
1

=== queue.topic | a topic: watches receive all messages, consumers one each
.define
    node Topic { name: String }
    node Publication { content: String, published_at: Timestamp }
    edge published(topic: Topic, pub: Publication)
> SPAWN news_topic: Topic { name = "news" }
> one = WATCH p: Publication, published(#news_topic, p) [mode: watch] RETURN p.content
> two = WATCH p: Publication, published(#news_topic, p) [mode: watch] RETURN p.content
> archive = WATCH p: Publication, published(#news_topic, p) [mode: consume] RETURN p.content
.events one, two, archive
initial (nothing)
>> SPAWN p: Publication { content = "news!", published_at = now() }
   LINK published(#news_topic, p)
.events one, two
added "news!"
.events archive
consumed "news!" (delivery d1)
> ACK #d1
.events one, two
removed "news!"

=== queue.work-queue, ack.competing | a work queue: higher priority first, first in first out within, one worker each
.reader pull
.define
    node Job { payload: String, priority: Int, created_at: Timestamp }
    edge pending_job(job: Job)
>> SPAWN a: Job { payload = "a", priority = 5, created_at = now() }
   LINK pending_job(#a)
   SPAWN b: Job { payload = "b", priority = 9, created_at = now() }
   LINK pending_job(#b)
   SPAWN c: Job { payload = "c", priority = 9, created_at = now() + 1s }
   LINK pending_job(#c)
   SPAWN d: Job { payload = "not enqueued", priority = 99, created_at = now() }
a> one = WATCH j: Job, pending_job(j)
    [mode: consume]
    [group: "workers"]
    [ordering: attribute(j.priority DESC, j.created_at ASC)]
    RETURN j.payload
b> two = WATCH j: Job, pending_job(j)
    [mode: consume]
    [group: "workers"]
    [ordering: attribute(j.priority DESC, j.created_at ASC)]
    RETURN j.payload
.events one
initial (nothing)
consumed "b" (delivery d1)
consumed "c" (delivery d2)
.events two
initial (nothing)
consumed "a" (delivery d3)
a> ACK #d1
deleted 1, unlinked 1
a> NACK #d2
.events two
consumed "c" (delivery d4, attempt 2)
b> ACK #d3
b> ACK #d4
> MATCH j: Job RETURN j.payload
"not enqueued"

=== queue.request-reply | a request goes to the service, its reply to the requester
.define
    node Actor { name: String }
    node Request { payload: String, correlation_id: String }
    node Response { payload: String, correlation_id: String }
    edge request_to(req: Request, service: Actor)
    edge response_to(resp: Response, requester: Actor)
>> SPAWN user_service: Actor { name = "users" }
   SPAWN client: Actor { name = "client" }
.session service as #user_service
.session client as #client
service> work = WATCH r: Request, request_to(r, #self)
    [mode: consume]
    RETURN r.payload, r.correlation_id
client> reply = WATCH r: Response, response_to(r, #self)
    WHERE r.correlation_id = "corr_abc"
    [mode: consume]
    RETURN r.payload
client> other = WATCH r: Response, response_to(r, #self)
    WHERE r.correlation_id = "corr_xyz"
    [mode: consume]
    RETURN r.payload
.events work, reply, other
initial (nothing)
.params {"service": "#user_service"}
client>> SPAWN req: Request { payload = "get user 123", correlation_id = "corr_abc" }
   LINK request_to(req, #$service)
.events work
consumed "get user 123" | "corr_abc" (delivery d1)
service> BEGIN
.params {"client": "#client"}
service>> SPAWN a: Response { payload = "Ada", correlation_id = "corr_abc" }
   LINK response_to(a, #$client)
service> ACK #d1
.events reply
(nothing)
service> COMMIT
.events reply
consumed "Ada" (delivery d2)
.events other
(nothing)
client> ACK #d2
> MATCH r: Request RETURN COUNT(*)
0
> MATCH r: Response RETURN COUNT(*)
0
