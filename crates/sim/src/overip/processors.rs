//! The two processors of a node, in order of priority: kernel, programs, background application.

use std::collections::VecDeque;

use nichrome_wire::Instant;

/// Processors of a node (section 3: dual Xeon).
pub(super) const PROCESSORS: usize = 2;

/// The task of a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Task {
    /// The program with this number.
    Program(usize),
    /// The application process with this number.
    Application(usize),
}

#[derive(Clone, Copy, Debug)]
struct Running {
    task: Task,
    /// Completion time of the task without further interrupts.
    ends: Instant,
}

#[derive(Clone, Debug, Default)]
struct Processor {
    kernel_until: Instant,
    running: Option<Running>,
    /// Number of tasks started on it.
    begun: u64,
}

/// A time to call [`Processors::fired`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wake {
    pub(super) at: Instant,
    pub(super) processor: usize,
    /// Identifies superseded wake-ups.
    pub(super) begun: u64,
}

/// The processors of a node.
#[derive(Clone, Debug)]
pub(super) struct Processors {
    all: [Processor; PROCESSORS],
    /// The processor that takes interrupts.
    interrupted: usize,
    /// Programs waiting for a processor, with their work in nanoseconds.
    ready: VecDeque<(usize, u64)>,
    /// The last processor of each program.
    last: Vec<usize>,
    /// Application processes waiting for a processor.
    background: VecDeque<usize>,
    /// Completed work of the application in nanoseconds, without running tasks.
    worked: u64,
    /// Wake-ups not yet scheduled by the world.
    wakes: Vec<Wake>,
    balancing: Balancing,
}

/// Whether the scheduler moves an application process away from the processor that takes interrupts to a free
/// one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Balancing {
    /// The process stays until a program preempts it.
    Off,
    /// Immediately.
    On,
}

/// Longer than any run: the application does not end.
const FOR_EVER: u64 = 1 << 60;

impl Processors {
    /// Creates idle processors for this number of programs and application processes; `interrupted` takes
    /// interrupts.
    pub(super) fn new(interrupted: usize, programs: usize, application: usize, balancing: Balancing) -> Self {
        let mut processors = Self {
            all: Default::default(),
            interrupted,
            ready: VecDeque::new(),
            last: vec![PROCESSORS - 1; programs],
            background: (0..application).collect(),
            worked: 0,
            wakes: Vec::new(),
            balancing,
        };
        processors.dispatch(Instant::ZERO);
        processors
    }

    /// Runs kernel work on the processor that takes interrupts; returns when it completes.
    pub(super) fn kernel(&mut self, nanos: u64, now: Instant) -> Instant {
        let processor = &mut self.all[self.interrupted];
        processor.kernel_until = processor.kernel_until.max(now).plus_nanos(nanos);
        if let Some(running) = &mut processor.running {
            running.ends = running.ends.plus_nanos(nanos);
        }
        processor.kernel_until
    }

    /// Returns true if kernel work runs at `now` on the processor that takes interrupts.
    pub(super) fn is_in_kernel(&self, now: Instant) -> bool {
        self.all[self.interrupted].kernel_until > now
    }

    /// Queues a program's work.
    pub(super) fn run(&mut self, program: usize, nanos: u64, now: Instant) {
        self.ready.push_back((program, nanos));
        self.dispatch(now);
    }

    /// Continues a program on its processor, before others.
    pub(super) fn resume(&mut self, program: usize, nanos: u64, now: Instant) {
        self.ready.push_front((program, nanos));
        self.dispatch(now);
    }

    /// Processes a wake-up; returns the program whose work is complete. Its processor stays free until
    /// [`Processors::dispatch`] or further work.
    pub(super) fn fired(&mut self, wake: Wake, now: Instant) -> Option<usize> {
        let processor = &mut self.all[wake.processor];
        let running = processor.running.filter(|_| processor.begun == wake.begun)?;
        if running.ends > now {
            self.wakes.push(Wake { at: running.ends, ..wake });
            return None;
        }
        processor.running = None;
        match running.task {
            Task::Program(program) => Some(program),
            Task::Application(_) => None,
        }
    }

    /// Assigns work to free processors.
    pub(super) fn dispatch(&mut self, now: Instant) {
        while let Some((program, nanos)) = self.ready.front().copied() {
            let Some(processor) = self.processor_for(program) else { break };
            self.ready.pop_front();
            self.last[program] = processor;
            self.preempt(processor, now);
            self.begin(processor, Task::Program(program), nanos, now);
        }
        let other = PROCESSORS - 1 - self.interrupted;
        if self.balancing == Balancing::On && self.all[other].running.is_none() {
            self.preempt(self.interrupted, now);
        }
        for processor in [other, self.interrupted] {
            if self.all[processor].running.is_none()
                && let Some(process) = self.background.pop_front()
            {
                self.begin(processor, Task::Application(process), FOR_EVER, now);
            }
        }
    }

    /// Returns the wake-ups to schedule.
    pub(super) fn take_wakes(&mut self) -> Vec<Wake> {
        std::mem::take(&mut self.wakes)
    }

    /// Returns the application's total work, in nanoseconds.
    pub(super) fn application_work(&self, now: Instant) -> u64 {
        let running: u64 = self.all.iter().filter_map(|processor| processor.application_work(now)).sum();
        self.worked + running
    }

    /// Returns a program's last processor if it is free, else another free one, else one that runs the
    /// application.
    fn processor_for(&self, program: usize) -> Option<usize> {
        let last = self.last[program];
        let order = || [last, PROCESSORS - 1 - last].into_iter();
        order().find(|processor| self.all[*processor].running.is_none()).or_else(|| {
            order().find(|processor| {
                let running = self.all[*processor].running;
                running.is_some_and(|running| matches!(running.task, Task::Application(_)))
            })
        })
    }

    /// Preempts the application on a processor.
    fn preempt(&mut self, processor: usize, now: Instant) {
        let place = &mut self.all[processor];
        if let Some(work) = place.application_work(now)
            && let Some(Running { task: Task::Application(process), .. }) = place.running.take()
        {
            self.worked += work;
            self.background.push_back(process);
        }
    }

    fn begin(&mut self, processor: usize, task: Task, nanos: u64, now: Instant) {
        let place = &mut self.all[processor];
        let ends = place.kernel_until.max(now).plus_nanos(nanos);
        place.running = Some(Running { task, ends });
        place.begun += 1;
        if let Task::Program(_) = task {
            self.wakes.push(Wake { at: ends, processor, begun: place.begun });
        }
    }
}

impl Processor {
    /// Returns the application's work on this processor since it was assigned.
    fn application_work(&self, now: Instant) -> Option<u64> {
        let Running { task: Task::Application(_), ends } = self.running? else { return None };
        let left = ends.nanos_since(self.kernel_until.max(now));
        Some(FOR_EVER - left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    /// Processes all wake-ups until `end`; returns when each program was done.
    fn run(processors: &mut Processors, end: u64) -> Vec<(usize, u64)> {
        let (mut done, mut wakes) = (Vec::new(), Vec::new());
        loop {
            wakes.extend(processors.take_wakes());
            wakes.sort_by_key(|wake: &Wake| std::cmp::Reverse((wake.at, wake.processor)));
            let Some(wake) = wakes.pop().filter(|wake| wake.at <= at(end)) else { return done };
            if let Some(program) = processors.fired(wake, wake.at) {
                done.push((program, wake.at.as_nanos()));
            }
            processors.dispatch(wake.at);
        }
    }

    #[test]
    fn an_interrupt_delays_what_runs_on_its_processor_only() {
        for (interrupted, ends) in [(0, 100), (1, 130)] {
            let mut processors = Processors::new(interrupted, 1, 0, Balancing::Off);
            processors.run(0, 100, at(0));
            assert_eq!(processors.kernel(30, at(50)), at(80));
            assert_eq!(run(&mut processors, 1000), [(0, ends)]);
        }
    }

    #[test]
    fn programs_take_turns_and_the_application_has_what_is_left() {
        let mut processors = Processors::new(0, 3, 1, Balancing::Off);
        for program in 0..3 {
            processors.run(program, 100, at(0));
        }
        assert_eq!(run(&mut processors, 1000), [(0, 100), (1, 100), (2, 200)]);
        // The second processor was free from 100 on.
        assert_eq!(processors.application_work(at(1000)), 900);
    }

    /// Both programs begin while the application has the other processor. Its share then depends on the
    /// scheduler.
    #[test]
    fn an_application_behind_interrupts_moves_where_the_scheduler_balances() {
        for (balancing, work) in [(Balancing::Off, 100 + 50), (Balancing::On, 100 + 300)] {
            let mut processors = Processors::new(0, 2, 1, balancing);
            // Processor 0 is free from 100 on, and processor 1, which ran the application before, from 200
            // on.
            processors.run(0, 100, at(0));
            processors.run(1, 200, at(0));
            run(&mut processors, 200);
            processors.kernel(250, at(200));
            run(&mut processors, 500);
            assert_eq!(processors.application_work(at(500)), work, "{balancing:?}");
        }
    }

    #[test]
    fn an_application_of_two_processes_loses_what_interrupts_take() {
        let mut processors = Processors::new(0, 1, 2, Balancing::Off);
        processors.kernel(100, at(500));
        assert_eq!(processors.application_work(at(1000)), 1900);
        processors.run(0, 40, at(1000));
        run(&mut processors, 2000);
        assert_eq!(processors.application_work(at(2000)), 3860);
    }
}
