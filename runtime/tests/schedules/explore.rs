//! Runs models under many schedules. A model is a test of loaders under shuttle.

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

/// The payload of a panic that a scenario plans.
struct Planned;

/// Panics like a user's code.
pub(crate) fn planned_panic() -> ! {
    panic::panic_any(Planned);
}

/// Panics at random in the loader's own code, in the loop of a worker, if the current test is about
/// such panics.
fn fault_point() {
    if WORKER_PANICS.get() && one_in(6) {
        planned_panic();
    }
}

thread_local! {
    /// Whether workers may panic in the loader's own code.
    static WORKER_PANICS: Cell<bool> = const { Cell::new(false) };
    /// A description of the current scenario.
    static SCENARIO: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Installs a panic hook that reports only unplanned panics, together with the scenario.
fn report_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // At its first run, shuttle installs a panic hook of its own, which the hook below calls.
        shuttle::check_dfs(|| (), Some(1));
        let shuttles = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            let payload: &dyn Any = panic.payload();
            if !payload.is::<Planned>() {
                SCENARIO.with_borrow(|scenario| eprintln!("{scenario}"));
                shuttles(panic);
            }
        }));
    });
}

/// A scheduler that randomly chooses one of three strategies for each schedule, as each finds
/// failures that the others rarely find: any thread at any step; usually the thread that ran last;
/// or priorities that change a few times (PCT).
struct Mixed {
    pct: PctScheduler,
    random: SampleRng,
    way: Way,
}

#[derive(Clone, Copy)]
enum Way {
    Any,
    MostlySame,
    Pct,
}

impl Mixed {
    /// Makes a scheduler for at most `schedules` schedules.
    fn new(seed: u64, schedules: u64) -> Self {
        let pct = PctScheduler::new_from_seed(seed, 4, schedules as usize);
        Self { pct, random: SampleRng::new(seed, 0, 0), way: Way::Any }
    }

    fn below(&mut self, n: usize) -> usize {
        self.random.next_u32() as usize % n
    }
}

impl Scheduler for Mixed {
    fn new_execution(&mut self) -> Option<Schedule> {
        self.way = [Way::Any, Way::MostlySame, Way::Pct][self.below(3)];
        self.pct.new_execution()
    }

    fn next_task(&mut self, runnable: &[&Task], current: Option<TaskId>, is_yielding: bool) -> Option<TaskId> {
        // PCT keeps its own schedule, so it must see every step.
        let by_pct = self.pct.next_task(runnable, current, is_yielding);
        let can_continue = !is_yielding && runnable.iter().any(|task| Some(task.id()) == current);
        let moves = self.below(8) == 0;
        match self.way {
            Way::Pct => by_pct,
            Way::MostlySame if can_continue && !moves => current,
            _ => Some(runnable[self.below(runnable.len())].id()),
        }
    }

    fn next_u64(&mut self) -> u64 {
        self.pct.next_u64()
    }
}

fn number(name: &str, default: u64) -> u64 {
    env::var(name)
        .map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is {text}; set it to a number")))
}

fn run(scheduler: impl Scheduler + 'static, about: About) {
    report_panics();
    slotline::sync::FAULT_HOOK.get_or_init(|| fault_point);
    let mut config = Config::new();
    config.stack_size = 1 << 18;
    config.max_steps = MaxSteps::FailAfter(200_000);
    config.silence_warnings = true;
    Runner::new(scheduler, config).run(move || {
        // `PctScheduler` panics if the first schedule has only one thread.
        thread::spawn(step).join().expect("no panic");
        let scenario = Scenario::draw(about);
        SCENARIO.set(format!("{scenario:?}"));
        WORKER_PANICS.set(about.worker_panics);
        check(&scenario);
    });
}

fn mixed(share: u64) -> Mixed {
    Mixed::new(number("SLOTLINE_SEED", 1), (number("SLOTLINE_SCHEDULES", 500) / share).max(1))
}

/// Runs a model under many schedules, or only under the schedule in the file that
/// `SLOTLINE_SCHEDULE` names.
pub(crate) fn explore(about: About) {
    if let Ok(file) = env::var("SLOTLINE_SCHEDULE") {
        let schedule = fs::read_to_string(&file).expect("SLOTLINE_SCHEDULE must name a readable file");
        run(ReplayScheduler::new_from_encoded(schedule.trim()), about);
    } else {
        run(mixed(1), about);
    }
}

/// Runs a tenth of the schedules, each twice, and asserts that a model depends on nothing except
/// its schedule.
pub(crate) fn replays(about: About) {
    run(UncontrolledNondeterminismCheckScheduler::new(mixed(10)), about);
}
