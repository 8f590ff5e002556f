//! Runs models under schedule after schedule.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::sync::Once;
use std::{env, fs, panic};

use shuttle::scheduler::{
    PctScheduler, ReplayScheduler, Schedule, Scheduler, Task, TaskId, UncontrolledNondeterminismCheckScheduler,
};
use shuttle::{Config, MaxSteps, Runner, thread};
use slotline::rng::SampleRng;
use slotline::rng::rand_core::Rng;

use crate::check;
use crate::dataset::step;
use crate::scenario::{About, Scenario, one_in};

/// What a panic says that a model wants to happen.
struct Asked;

/// Panics as a user's code might.
pub(crate) fn asked_for() -> ! {
    panic::panic_any(Asked);
}

/// Has a worker's own loop panic now and then, where the model that runs in this thread is about that.
fn mishap() {
    if MISHAPS.get() && one_in(6) {
        asked_for();
    }
}

thread_local! {
    /// Whether workers may come to their end at any time.
    static MISHAPS: Cell<bool> = const { Cell::new(false) };
    /// What is being run.
    static SCENARIO: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Has only those panics reported that no model wants, with what was being run.
fn report_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // Shuttle sets a hook of its own at its first run.
        shuttle::check_dfs(|| (), Some(1));
        let shuttles = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            let payload: &dyn Any = panic.payload();
            if !payload.is::<Asked>() {
                SCENARIO.with_borrow(|scenario| eprintln!("{scenario}"));
                shuttles(panic);
            }
        }));
    });
}

/// Three ways to choose who goes on, drawn anew for each schedule. Each finds what the others hardly would: anybody at any
/// step; mostly whoever went on before; or by priorities that change a few times (PCT).
struct Mixed {
    pct: PctScheduler,
    random: SampleRng,
    way: Way,
}

#[derive(Clone, Copy)]
enum Way {
    Anybody,
    Mostly,
    Pct,
}

impl Mixed {
    /// So many schedules at most.
    fn new(seed: u64, schedules: u64) -> Self {
        let pct = PctScheduler::new_from_seed(seed, 4, schedules as usize);
        Self { pct, random: SampleRng::new(seed, 0, 0), way: Way::Anybody }
    }

    fn below(&mut self, n: usize) -> usize {
        self.random.next_u32() as usize % n
    }
}

impl Scheduler for Mixed {
    fn new_execution(&mut self) -> Option<Schedule> {
        self.way = [Way::Anybody, Way::Mostly, Way::Pct][self.below(3)];
        self.pct.new_execution()
    }

    fn next_task(&mut self, runnable: &[&Task], current: Option<TaskId>, is_yielding: bool) -> Option<TaskId> {
        // It has a schedule of its own to keep up with.
        let by_pct = self.pct.next_task(runnable, current, is_yielding);
        let goes_on = !is_yielding && runnable.iter().any(|task| Some(task.id()) == current);
        let moves = self.below(8) == 0;
        match self.way {
            Way::Pct => by_pct,
            Way::Mostly if goes_on && !moves => current,
            _ => Some(runnable[self.below(runnable.len())].id()),
        }
    }

    fn next_u64(&mut self) -> u64 {
        self.pct.next_u64()
    }
}

fn number(name: &str, default: u64) -> u64 {
    env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is {text}, and no number")))
}

fn run(scheduler: impl Scheduler + 'static, about: About) {
    report_panics();
    slotline::sync::MISHAP.get_or_init(|| mishap);
    let mut config = Config::new();
    config.stack_size = 1 << 18;
    config.max_steps = MaxSteps::FailAfter(200_000);
    config.silence_warnings = true;
    Runner::new(scheduler, config).run(move || {
        // `PctScheduler` takes it for a mistake if the first schedule has one thread only.
        thread::spawn(step).join().expect("no panic");
        let scenario = Scenario::draw(about);
        SCENARIO.set(format!("{scenario:?}"));
        MISHAPS.set(about.mishaps);
        check(&scenario);
    });
}

fn mixed(share: u64) -> Mixed {
    Mixed::new(number("SLOTLINE_SEED", 1), (number("SLOTLINE_SCHEDULES", 500) / share).max(1))
}

/// Runs a model under schedule after schedule, or under the one that is to be run again.
pub(crate) fn explore(about: About) {
    if let Ok(file) = env::var("SLOTLINE_SCHEDULE") {
        let schedule = fs::read_to_string(&file).expect("SLOTLINE_SCHEDULE is a file");
        run(ReplayScheduler::new_from_encoded(schedule.trim()), about);
    } else {
        run(mixed(1), about);
    }
}

/// Runs a tenth as many, each twice, to see that nothing depends on anything else.
pub(crate) fn replays(about: About) {
    run(UncontrolledNondeterminismCheckScheduler::new(mixed(10)), about);
}
