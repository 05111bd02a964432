-- Channels are patterns: inboxes, topics, requests and replies, in watch mode.

.ontology mail
    node Actor { name: String }
    node Message { content: String, sent_at: Timestamp = now(), read: Bool = false }
    edge inbox(recipient: Actor, message: Message)

.ontology news
    node Actor { name: String }
    node Topic { name: String }
    node Publication { content: String, published_at: Timestamp = now() }
    edge published(topic: Topic, pub: Publication)
    edge subscribed(actor: Actor, topic: Topic)

=== watch.inbox, watch.captured-actor | an inbox receives only messages to its owner
.scope pattern
.use mail
>> SPAWN ann: Actor { name = "Ann" }
   SPAWN bob: Actor { name = "Bob" }
.session ann as #ann
.session bob as #bob
ann> mine = WATCH m: Message, inbox(#self, m) [mode: watch, ordering: attribute(m.sent_at ASC)]
  RETURN m.content
bob> his = WATCH m: Message, inbox(#self, m) [ordering: attribute(m.sent_at ASC)] RETURN m.content
.events mine, his
initial (nothing)
> BEGIN
>> SPAWN m: Message { content = "hello" }
   LINK inbox(#bob, m)
> COMMIT
.events mine
(nothing)
.events his
added "hello"
> LINK inbox(#ann, #m)
.events mine
added "hello"
.events his
(nothing)

=== watch.inbox | a deleted message is removed from the inbox
.scope pattern
.use mail
>> SPAWN bob: Actor { name = "Bob" }
   SPAWN m: Message { content = "oops" }
   LINK inbox(#bob, #m)
.session bob as #bob
bob> his = WATCH m: Message, inbox(#self, m) RETURN m.content
.events his
initial
  "oops"
> KILL #m
.events his
removed "oops"

=== watch.channel, example.self | an inbox is a node with an owner
.scope pattern
.define
    node Actor { name: String }
    node Inbox { owner: Actor }
    node Message { content: String, sent_at: Timestamp }
    edge pending(inbox: Inbox, message: Message)
>> SPAWN alice: Actor { name = "Alice" }
   SPAWN alice_inbox: Inbox { owner = #alice }
> channel = WATCH m: Message, pending(#alice_inbox, m)
    [mode: watch]
    [ordering: attribute(m.sent_at)]
    RETURN m
> by_owner = WATCH i: Inbox, m: Message, pending(i, m) WHERE i.owner = #alice RETURN m.content
.events channel, by_owner
initial (nothing)
>> SPAWN m: Message { content = "hello", sent_at = now() }
   LINK pending(#alice_inbox, m)
.events channel
added Message #m {content: "hello", sent_at: @2024-01-01T00:00:00.000Z}
.events by_owner
added "hello"

=== watch.topic | every subscriber of a topic receives every publication
.scope pattern
.use news
>> SPAWN news_topic: Topic { name = "news" }
   SPAWN sport: Topic { name = "sport" }
> one = WATCH p: Publication, published(#news_topic, p) [mode: watch] RETURN p
> two = WATCH p: Publication, published(#news_topic, p) [mode: watch] RETURN p
> three = WATCH p: Publication, published(#sport, p) [mode: watch] RETURN p
.events one, two, three
initial (nothing)
>> SPAWN p: Publication { content = "news!", published_at = now() }
   LINK published(#news_topic, p)
.events one, two
added Publication #p {content: "news!", published_at: @2024-01-01T00:00:00.000Z}
.events three
(nothing)

=== watch.topic, watch.dependencies | linking and unlinking a subscription adds and removes publications
.scope pattern
.use news
>> SPAWN ann: Actor { name = "Ann" }
   SPAWN news: Topic { name = "news" }
   SPAWN old: Publication { content = "yesterday" }
   LINK published(#news, #old)
.session ann as #ann
ann> feed = WATCH p: Publication, t: Topic, published(t, p), subscribed(#self, t) RETURN p.content
.events feed
initial (nothing)
> LINK subscribed(#ann, #news)
.events feed
added "yesterday"
>> SPAWN new: Publication { content = "today" }
   LINK published(#news, #new)
.events feed
added "today"
> UNLINK subscribed(#ann, #news)
.events feed
removed "yesterday"
removed "today"

=== watch.request-reply | a client receives the reply to its own request only
.scope pattern
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
service> work = WATCH r: Request, request_to(r, #self) [mode: watch] RETURN r.payload, r.correlation_id
client> reply = WATCH r: Response, response_to(r, #self)
  WHERE r.correlation_id = "corr_abc"
  [mode: watch]
  RETURN r.payload
client> other = WATCH r: Response, response_to(r, #self)
  WHERE r.correlation_id = "corr_xyz"
  RETURN r.payload
.events work, reply, other
initial (nothing)
>> SPAWN req: Request { payload = "get user 123", correlation_id = "corr_abc" }
   LINK request_to(req, #user_service)
.events work
added "get user 123" | "corr_abc"
.params {"client": "#client"}
service>> SPAWN a: Response { payload = "Ada", correlation_id = "corr_abc" }
   LINK response_to(a, #$client)
.events reply
added "Ada"
.events other
(nothing)

=== watch.attribute-order | pending events are ordered by priority
.scope node
.define node Job { name: String, priority: Int?, at: Int = 0 }
> jobs = WATCH j: Job [ordering: attribute(j.priority DESC, j.at ASC), initial: none] RETURN j.name
>> SPAWN a: Job { name = "low", priority = 1 }
   SPAWN b: Job { name = "high, later", priority = 9, at = 2 }
   SPAWN c: Job { name = "high, first", priority = 9, at = 1 }
   SPAWN d: Job { name = "unknown" }
   SPAWN e: Job { name = "middle", priority = 5 }
.events jobs ordered
added "unknown" (position 4)
added "high, first" (position 3)
added "high, later" (position 2)
added "middle" (position 5)
added "low" (position 1)

=== watch.attribute-order, watch.match-order | ascending order puts nulls last and keeps arrival order among ties
.reader pull
.scope node
.define node Job { name: String, priority: Int? }
> jobs = WATCH j: Job [ordering: attribute(j.priority), initial: none] RETURN j.name
>> SPAWN a: Job { name = "none" }
   SPAWN b: Job { name = "two", priority = 2 }
   SPAWN c: Job { name = "two again", priority = 2 }
   SPAWN d: Job { name = "one", priority = 1 }
.events jobs limit 2 ordered
added "one"
added "two"
> SPAWN e: Job { name = "zero", priority = 0 }
.events jobs ordered
added "zero"
added "two again"
added "none"

=== watch.match-order, watch.attribute-order | events of one match are never reordered
.scope node
.define node Job { name: String, priority: Int }
> jobs = WATCH j: Job [ordering: attribute(j.priority DESC), initial: none] RETURN j.name, j.priority
>> SPAWN a: Job { name = "a", priority = 1 }
   SPAWN b: Job { name = "b", priority = 5 }
   SET #a.priority = 9
   KILL #a
.events jobs ordered
added "b" | 5
added "a" | 1
changed "a" | 1 -> "a" | 9
removed "a" | 9

=== example.unread | an unread counter for each reader
.scope pattern
.use mail
>> SPAWN ann: Actor { name = "Ann" }
   SPAWN a: Message { content = "a" }
   LINK inbox(#ann, #a)
> unread = WATCH p: Actor, m: Message, inbox(p, m) WHERE m.read = false RETURN p.name, COUNT(m) AS unread
.events unread
initial
  "Ann" | 1
>> SPAWN b: Message { content = "b" }
   LINK inbox(#ann, #b)
.events unread
changed "Ann" | 1 -> "Ann" | 2
> SET #a.read = true
> SET #b.read = true
.events unread
changed "Ann" | 2 -> "Ann" | 1
removed "Ann" | 1

=== example.presence | presence follows an edge
.scope pattern
.define
    node User { name: String }
    node Room { name: String }
    edge present_in(user: User, room: Room) { since: Timestamp = now() }
>> SPAWN hall: Room { name = "hall" }
   SPAWN ann: User { name = "Ann" }
   SPAWN bob: User { name = "Bob" }
> here = WATCH present_in(u, #hall) AS p RETURN u.name, p.since
.events here
initial (nothing)
> LINK present_in(#ann, #hall)
.events here
added "Ann" | @2024-01-01T00:00:00.000Z
.advance 1m
> LINK present_in(#bob, #hall) AS bobs
.events here
added "Bob" | @2024-01-01T00:01:00.000Z
> SET #bobs.since = @2024-01-01T00:00:30Z
.events here
changed "Bob" | @2024-01-01T00:01:00.000Z -> "Bob" | @2024-01-01T00:00:30.000Z
> KILL #ann
.events here
removed "Ann" | @2024-01-01T00:00:00.000Z
