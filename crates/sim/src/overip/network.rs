//! The world: programs on nodes, and the flow of frames between them.

use nichrome_rdma::RKey;
use nichrome_wire::{Engine, Instant};

use super::adapter::{CompleteFpdus, Request};
use super::config::{HostCosts, TestbedConfig, Transport};
use super::event::Event;
use super::node::{Context, Node};
use super::processors::Wake;
use super::programs::{Program, ProgramState, Step, Stopwatch};
use super::router::{Effect, Port, Router};
use super::set_up::connect;
use super::topology::{A, B, LinkDestination, SERVER, switches};
use crate::experiment::RunError;
use crate::host::ConnectionId;
use crate::observe::{Capture, PointId};
use crate::{EventQueue, HostId, Link, Packet, Switch, Timer, World};

/// The test bed with its programs.
pub(super) struct Network {
    pub(super) nodes: Vec<Node>,
    programs: Vec<Program>,
    pub(super) stopwatch: Stopwatch,
    switches: [Switch; 2],
    destinations: [Vec<LinkDestination>; 2],
    router: Router,
    router_links: [Link; 2],
    router_timers: [Timer; 2],
    transport: Transport,
    costs: HostCosts,
    /// The program whose work has just completed, which continues before others.
    continuing: Option<usize>,
    /// Frames dropped because of a full queue.
    pub(super) dropped: u64,
    /// The error that stops the run.
    pub(super) failed: Option<RunError>,
    capture: Capture,
    point: PointId,
}

impl Network {
    /// Creates a test bed in which clients and server repeat these steps, the server once per client.
    pub(super) fn new(
        config: &TestbedConfig,
        [client, server]: [Vec<Step>; 2],
        stopwatch: Stopwatch,
        mut capture: Capture,
    ) -> Result<Self, RunError> {
        let mut programs = Vec::new();
        for nth in 0..config.clients {
            programs.push(Program::new(nth + 1, 0, SERVER, client.clone()));
            programs.push(Program::new(SERVER, nth, nth + 1, server.clone()));
        }
        let node = |nth: usize| {
            let application = if nth == SERVER { config.application } else { 0 };
            Node::new(HostId(nth as u16), config, programs.len(), application)
        };
        let mut nodes = (0..=config.clients).map(node).collect::<Result<Vec<_>, _>>()?;
        nodes[SERVER].listen();
        if let (Transport::Packets(packets), Some((server, clients))) =
            (config.transport, nodes.split_first_mut())
        {
            for client in clients {
                if let (Some(client), Some(server)) = (&mut client.adapter, &mut server.adapter) {
                    connect(client, server, packets, config)?;
                }
            }
        }
        let (switches, destinations) = switches(config);
        let router = Router::new(config.router, config.seed)
            .map_err(|error| RunError::Impossible(format!("degen refuses it: {error}")))?;
        let point = capture.add_point("server wire");
        Ok(Self {
            nodes,
            programs,
            stopwatch,
            switches,
            destinations,
            router,
            router_links: [Link::new(config.link), Link::new(config.link)],
            router_timers: [Timer::default(); 2],
            transport: config.transport,
            costs: config.costs,
            continuing: None,
            dropped: 0,
            failed: None,
            capture,
            point,
        })
    }

    fn start(&mut self, queue: &mut EventQueue<Event>) -> Result<(), RunError> {
        if !matches!(self.transport, Transport::Packets(_)) {
            for node in 1..self.nodes.len() {
                self.nodes[node].connect(HostId(SERVER as u16), queue.now())?;
                let context = Context::in_background(self.transport);
                self.send(node, context, queue);
            }
        }
        for program in 0..self.programs.len() {
            self.advance(program, queue)?;
        }
        Ok(())
    }

    /// Forwards the frames of a node's TCP and adapter, and arms its timer. Returns the number of frames that
    /// the program's system call has to send; 0 outside a call.
    fn send(&mut self, node: usize, context: Context, queue: &mut EventQueue<Event>) -> u64 {
        let now = queue.now();
        let this = &mut self.nodes[node];
        let mut frames = 0;
        while let Some(frame) = this.poll() {
            frames += 1;
            match context {
                Context::Call => {
                    let at = now.plus_nanos(frames * this.costs.segment_out);
                    queue.schedule(at, Event::Driver(node, frame));
                }
                Context::Kernel => {
                    let at = this.processors.kernel(this.costs.segment_out, now);
                    queue.schedule(at, Event::Driver(node, frame));
                }
                Context::Card => fetch(this, node, frame, queue),
            }
        }
        let due = this.poll_timeout();
        this.timer.arm(due, queue, Event::Tcp(node));
        if context == Context::Call { frames } else { 0 }
    }

    /// Queues a program's work for a processor.
    fn work(&mut self, program: usize, nanos: u64, state: ProgramState, queue: &mut EventQueue<Event>) {
        let now = queue.now();
        self.programs[program].state = state;
        let node = self.programs[program].node;
        let processors = &mut self.nodes[node].processors;
        if self.continuing == Some(program) {
            self.continuing = None;
            processors.resume(program, nanos, now);
        } else {
            processors.run(program, nanos, now);
        }
        self.wake_later(node, queue);
    }

    fn wake_later(&mut self, node: usize, queue: &mut EventQueue<Event>) {
        for wake in self.nodes[node].processors.take_wakes() {
            queue.schedule(wake.at, Event::Processor(node, wake));
        }
    }

    /// Processes a processor's wake-up: continues the program whose work is complete, if any.
    fn processor(&mut self, node: usize, wake: Wake, queue: &mut EventQueue<Event>) -> Result<(), RunError> {
        let now = queue.now();
        if let Some(program) = self.nodes[node].processors.fired(wake, now) {
            self.continuing = Some(program);
            self.advance(program, queue)?;
            self.continuing = None;
            self.nodes[node].processors.dispatch(now);
        }
        self.wake_later(node, queue);
        Ok(())
    }

    /// Advances a program until it has work for a processor or waits.
    fn advance(&mut self, program: usize, queue: &mut EventQueue<Event>) -> Result<(), RunError> {
        loop {
            let now = queue.now();
            let this = &mut self.programs[program];
            let continues = match this.step() {
                None => false,
                Some(Step::Start | Step::Compute(_)) if self.stopwatch.is_done() => false,
                Some(Step::Start) => {
                    self.stopwatch.start(now);
                    this.next();
                    true
                }
                Some(Step::Stop) => {
                    self.stopwatch.stop(now);
                    this.next();
                    true
                }
                Some(Step::Compute(nanos)) => self.compute(program, nanos, queue),
                Some(Step::Send(_)) if self.transport == Transport::Sockets => {
                    self.send_bytes(program, queue)
                }
                Some(Step::Await(_)) if self.transport == Transport::Sockets => {
                    self.receive_bytes(program, queue)
                }
                Some(Step::Send(_)) => self.post(program, true, queue),
                Some(Step::Fetch(_)) => self.post(program, false, queue),
                Some(Step::Await(len)) => self.poll_message(program, len, queue),
            };
            if !continues {
                return Ok(());
            }
        }
    }

    fn compute(&mut self, program: usize, nanos: u64, queue: &mut EventQueue<Event>) -> bool {
        let this = &mut self.programs[program];
        if this.state == ProgramState::Work || nanos == 0 {
            // A program whose only step takes no time would repeat it forever.
            let ends = nanos > 0 || !this.is_single();
            this.next();
            return ends;
        }
        self.work(program, nanos, ProgramState::Work, queue);
        false
    }

    /// Executes a sending call: copies and sends segment by segment.
    fn send_bytes(&mut self, program: usize, queue: &mut EventQueue<Event>) -> bool {
        let this = &mut self.programs[program];
        let node = &mut self.nodes[this.node];
        if let ProgramState::Sending(bytes) = this.state {
            this.left -= node.write(this.connection, bytes, queue.now());
            return self.ends_call(program, queue);
        }
        if this.left == 0 {
            this.next();
            return true;
        }
        let bytes = this.left.min(node.longest_write);
        if node.writable(this.connection) < bytes {
            this.state = ProgramState::AwaitRoom;
            return false;
        }
        let call = if this.state == ProgramState::Work { 0 } else { self.costs.call };
        self.work(program, call + self.costs.copy_of(bytes), ProgramState::Sending(bytes), queue);
        false
    }

    /// Ends a call: sends TCP's output, which takes the program time per segment. Returns true if there was
    /// none.
    fn ends_call(&mut self, program: usize, queue: &mut EventQueue<Event>) -> bool {
        let this = &mut self.programs[program];
        this.state = ProgramState::Work;
        let place = this.node;
        let frames = self.send(place, Context::Call, queue);
        if frames > 0 {
            self.work(program, frames * self.costs.segment_out, ProgramState::Work, queue);
        }
        frames == 0
    }

    /// Executes receiving calls: each reads the received bytes.
    fn receive_bytes(&mut self, program: usize, queue: &mut EventQueue<Event>) -> bool {
        let this = &mut self.programs[program];
        let node = &mut self.nodes[this.node];
        if let ProgramState::Receiving(bytes) = this.state {
            this.left -= node.read(this.connection, bytes, queue.now());
            return self.ends_call(program, queue);
        }
        if this.left == 0 {
            this.next();
            return true;
        }
        let bytes = this.left.min(node.readable(this.connection));
        if bytes == 0 {
            this.state = ProgramState::AwaitBytes;
            return false;
        }
        let nanos = self.costs.call + self.costs.copy_of(bytes);
        self.work(program, nanos, ProgramState::Receiving(bytes), queue);
        false
    }

    /// Posts a WRITE, or posts a READ and waits for its completion.
    fn post(&mut self, program: usize, is_write: bool, queue: &mut EventQueue<Event>) -> bool {
        let this = &mut self.programs[program];
        let node = &mut self.nodes[this.node];
        match this.state {
            ProgramState::Posting => {
                let message = is_write.then_some(this.sent);
                let request = Request { connection: this.connection, len: this.left, message };
                if let Some(adapter) = &mut node.adapter {
                    adapter.reserve(this.connection);
                }
                let at = node.card.fetch_request(queue.now());
                queue.schedule(at, Event::Doorbell(this.node, this.peer, request));
                if is_write {
                    this.sent += 1;
                    this.next();
                } else {
                    this.state = ProgramState::AwaitRead;
                }
                is_write
            }
            ProgramState::AwaitRead => false,
            ProgramState::Found => {
                this.next();
                true
            }
            _ => {
                if node.adapter.as_ref().is_some_and(|adapter| adapter.has_room(this.connection)) {
                    self.work(program, self.costs.verb, ProgramState::Posting, queue);
                } else {
                    this.state = ProgramState::AwaitCompletion;
                }
                false
            }
        }
    }

    /// Polls the memory for a message.
    fn poll_message(&mut self, program: usize, len: usize, queue: &mut EventQueue<Event>) -> bool {
        let this = &mut self.programs[program];
        if this.state == ProgramState::Found {
            this.received += 1;
            this.next();
            return true;
        }
        let adapter = self.nodes[this.node].adapter.as_ref();
        if adapter.is_some_and(|adapter| adapter.has_message(this.received, len)) {
            self.work(program, self.costs.verb, ProgramState::Found, queue);
        } else {
            this.state = ProgramState::AwaitMessage;
        }
        false
    }

    /// Lets waiting programs of a node check their conditions.
    fn wake_programs(&mut self, node: usize, queue: &mut EventQueue<Event>) -> Result<(), RunError> {
        for program in 0..self.programs.len() {
            let this = &self.programs[program];
            if this.node == node && this.state.awaits_condition() {
                self.advance(program, queue)?;
            }
        }
        Ok(())
    }

    /// Passes a frame, or an expired timer, to a node's TCP; continues the programs that waited for it.
    fn tcp(
        &mut self,
        node: usize,
        frame: Option<Packet>,
        queue: &mut EventQueue<Event>,
    ) -> Result<(), RunError> {
        let now = queue.now();
        let this = &mut self.nodes[node];
        match frame {
            Some(Packet::Frame(frame)) => this.tcp.receive(frame, now),
            Some(Packet::Outline(_)) => {}
            None => {
                this.timer.fired(now);
                this.tcp.handle_timeout(now);
                self.datagram(node, None, queue)?;
            }
        }
        self.streams(node, queue)?;
        let context = Context::in_background(self.transport);
        self.send(node, context, queue);
        self.wake_programs(node, queue)
    }

    /// Exchanges bytes between a node's TCP and its adapter.
    fn streams(&mut self, node: usize, queue: &mut EventQueue<Event>) -> Result<(), RunError> {
        if self.transport != Transport::Rdma {
            return Ok(());
        }
        let now = queue.now();
        let this = &mut self.nodes[node];
        this.start_streams(now);
        let Node { adapter: Some(adapter), tcp, card, .. } = this else { return Ok(()) };
        for connection in 0..adapter.connections() {
            let id = ConnectionId(connection);
            if tcp.connections().get(connection).is_some_and(|connection| connection.unread() > 0) {
                let fpdus = adapter.read(id, tcp, now)?;
                if fpdus.bytes > 0 {
                    let at = card.messages(fpdus.messages, now);
                    queue.schedule(at, Event::Delivered(node, connection, fpdus));
                }
            }
            adapter.flush(id, tcp, now)?;
        }
        adapter.completions()?;
        Ok(())
    }

    /// Processes a work request that the card has handled.
    fn posted(
        &mut self,
        node: usize,
        request: Request,
        key: RKey,
        queue: &mut EventQueue<Event>,
    ) -> Result<(), RunError> {
        let Node { adapter: Some(adapter), tcp, .. } = &mut self.nodes[node] else { return Ok(()) };
        adapter.request(request, key, tcp, queue.now())?;
        adapter.completions()?;
        self.send(node, Context::Card, queue);
        self.wake_programs(node, queue)
    }

    /// Processes messages that are in memory.
    fn placed(
        &mut self,
        node: usize,
        connection: usize,
        fpdus: CompleteFpdus,
        queue: &mut EventQueue<Event>,
    ) -> Result<(), RunError> {
        let Node { adapter: Some(adapter), tcp, received, .. } = &mut self.nodes[node] else { return Ok(()) };
        *received += fpdus.payload as u64;
        let reads = adapter.process(ConnectionId(connection), fpdus.bytes, queue.now(), tcp)?;
        self.completed(node, &reads, queue)
    }

    /// Processes a datagram in a node's memory, or an expired timer of its adapter.
    fn datagram(
        &mut self,
        node: usize,
        frame: Option<&[u8]>,
        queue: &mut EventQueue<Event>,
    ) -> Result<(), RunError> {
        let Node { adapter: Some(adapter), tcp, .. } = &mut self.nodes[node] else { return Ok(()) };
        let reads = adapter.receive(frame, tcp, queue.now())?;
        self.completed(node, &reads, queue)
    }

    /// Continues programs whose READs have completed, and those that wait for messages.
    fn completed(
        &mut self,
        node: usize,
        reads: &[usize],
        queue: &mut EventQueue<Event>,
    ) -> Result<(), RunError> {
        self.send(node, Context::Card, queue);
        for program in 0..self.programs.len() {
            let this = &self.programs[program];
            let is_its = this.node == node && reads.contains(&this.connection);
            if is_its && this.state == ProgramState::AwaitRead {
                self.work(program, self.costs.verb, ProgramState::Found, queue);
            }
        }
        self.wake_programs(node, queue)
    }

    /// Transmits a frame of a card.
    fn wire(&mut self, node: usize, frame: Packet, queue: &mut EventQueue<Event>) {
        if node == SERVER {
            self.capture.record(self.point, queue.now(), &frame);
        }
        let switch = if node == SERVER && self.destinations[B].len() > 1 { B } else { A };
        match self.nodes[node].uplink.send(frame.wire_len(), queue.now()) {
            Ok(sent) => queue.schedule(sent.arrives, Event::AtSwitch(switch, frame)),
            Err(_) => self.dropped += 1,
        }
    }

    fn switch(&mut self, switch: usize, mut frame: Packet, queue: &mut EventQueue<Event>) {
        match self.switches[switch].forward(&mut frame, queue.now()) {
            Ok(forwarded) => {
                let event = match self.destinations[switch][forwarded.port.0] {
                    LinkDestination::Node(node) => Event::AtCard(node, frame),
                    LinkDestination::Router(port) => Event::AtRouter(port, frame),
                };
                queue.schedule(forwarded.sent.arrives, event);
            }
            Err(_) => self.dropped += 1,
        }
    }

    /// Schedules the router's effects for frames from a port, and degen's timer.
    fn apply(&mut self, port: Port, effects: Vec<Effect>, queue: &mut EventQueue<Event>) {
        for effect in effects {
            match effect {
                Effect::Interrupt { at, port, interrupts } => {
                    queue.schedule(at, Event::RouterInterrupt(port, interrupts));
                }
                Effect::Forward { at, port, frame } => queue.schedule(at, Event::Forward(port, frame)),
            }
        }
        let due = self.router.poll_timeout(port);
        self.router_timers[port].arm(due, queue, Event::Degen(port));
    }

    /// Sends a frame from a port of the router through the other one.
    fn leave_router(&mut self, port: Port, frame: Packet, queue: &mut EventQueue<Event>) {
        let out = 1 - port;
        match self.router_links[out].send(frame.wire_len(), queue.now()) {
            Ok(sent) => queue.schedule(sent.arrives, Event::AtSwitch(out, frame)),
            Err(_) => self.dropped += 1,
        }
    }

    fn try_handle(&mut self, event: Event, queue: &mut EventQueue<Event>) -> Result<(), RunError> {
        let now = queue.now();
        match event {
            Event::Start => self.start(queue)?,
            Event::Processor(node, wake) => self.processor(node, wake, queue)?,
            Event::Driver(node, frame) => fetch(&mut self.nodes[node], node, frame, queue),
            Event::Fetched(node, frame) => {
                let at = self.nodes[node].card.frame(now);
                queue.schedule(at, Event::Wire(node, frame));
            }
            Event::Wire(node, frame) => self.wire(node, frame, queue),
            Event::AtSwitch(switch, frame) => self.switch(switch, frame, queue),
            Event::AtRouter(port, frame) => {
                let mut effects = Vec::new();
                self.router.receive(port, frame, now, &mut effects);
                self.apply(port, effects, queue);
            }
            Event::RouterInterrupt(port, interrupts) => {
                let mut effects = Vec::new();
                self.router.due(port, interrupts, now, &mut effects);
                self.apply(port, effects, queue);
            }
            Event::Forward(port, frame) => self.leave_router(port, frame, queue),
            Event::Degen(port) => {
                self.router_timers[port].fired(now);
                let mut effects = Vec::new();
                self.router.release(port, now, &mut effects);
                self.apply(port, effects, queue);
            }
            Event::AtCard(node, frame) => {
                if node == SERVER {
                    self.capture.record(self.point, now, &frame);
                }
                let at = self.nodes[node].card.frame(now);
                queue.schedule(at, Event::FromCard(node, frame));
            }
            Event::FromCard(node, frame) => match self.transport {
                Transport::Sockets | Transport::Packets(_) => {
                    let at = self.nodes[node].card.place(frame.wire_len(), now);
                    queue.schedule(at, Event::InMemory(node, frame));
                }
                Transport::Rdma => self.tcp(node, Some(frame), queue)?,
            },
            Event::InMemory(node, frame) if matches!(self.transport, Transport::Packets(_)) => {
                self.datagram(node, frame.bytes(), queue)?;
            }
            Event::InMemory(node, frame) => {
                let processors = &mut self.nodes[node].processors;
                // Packets that arrive during an interrupt are handled by it.
                let interrupt = if processors.is_in_kernel(now) { 0 } else { self.costs.interrupt };
                let at = processors.kernel(interrupt + self.costs.packet_in, now);
                queue.schedule(at, Event::Kernel(node, frame));
            }
            Event::Kernel(node, frame) => self.tcp(node, Some(frame), queue)?,
            Event::Doorbell(node, peer, request) => {
                let at = self.nodes[node].card.messages(1, now);
                queue.schedule(at, Event::Posted(node, peer, request));
            }
            Event::Posted(node, peer, request) => {
                if let Some(key) = self.nodes[peer].adapter.as_ref().map(super::adapter::Adapter::rkey) {
                    self.posted(node, request, key, queue)?;
                }
            }
            Event::Delivered(node, connection, fpdus) => {
                let at = self.nodes[node].card.place(fpdus.payload, now);
                queue.schedule(at, Event::Placed(node, connection, fpdus));
            }
            Event::Placed(node, connection, fpdus) => self.placed(node, connection, fpdus, queue)?,
            Event::Tcp(node) => self.tcp(node, None, queue)?,
        }
        Ok(())
    }

    /// Returns the application's total work, in nanoseconds.
    pub(super) fn application_work(&self, now: Instant) -> u64 {
        self.nodes[SERVER].processors.application_work(now)
    }

    /// Returns the number of frames that degen dropped.
    pub(super) fn lost(&self) -> u64 {
        self.router.lost()
    }

    /// Returns the retransmitted segments and datagrams of all nodes.
    pub(super) fn retransmitted(&self) -> u64 {
        self.nodes.iter().map(Node::retransmitted).sum()
    }
}

/// Reads a frame from a node's memory and transmits it.
fn fetch(this: &mut Node, node: usize, frame: Packet, queue: &mut EventQueue<Event>) {
    let at = this.card.fetch(frame.wire_len(), queue.now());
    queue.schedule(at, Event::Fetched(node, frame));
}

impl World for Network {
    type Event = Event;

    fn handle(&mut self, event: Event, queue: &mut EventQueue<Event>) {
        if self.failed.is_none()
            && let Err(error) = self.try_handle(event, queue)
        {
            self.failed = Some(error);
        }
    }
}
