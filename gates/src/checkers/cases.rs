//! The corpus: kernels that the checks must catch, and kernels that they must not flag.

use ptx_sim::Access;

/// What must come of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It runs, and nothing is flagged.
    Clean,
    /// The simulated device stops it with a fault of this name ([`ptx_sim::FaultKind::name`]).
    Caught(&'static str),
}

/// The tool of compute-sanitizer that has the check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tool {
    /// None has it, for a kernel to catch; all must be silent, for a clean one.
    None,
    Memcheck,
    Initcheck,
    Racecheck,
}

impl Tool {
    pub(super) fn name(self) -> &'static str {
        match self {
            Tool::None => "-",
            Tool::Memcheck => "memcheck",
            Tool::Initcheck => "initcheck",
            Tool::Racecheck => "racecheck",
        }
    }
}

/// What `in` is when the kernel starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Input {
    /// [`WORDS`] words.
    Written,
    /// The first half of them is written, the rest is as it was allocated.
    HalfWritten,
    /// Freed.
    Freed,
}

/// Words of each of the three buffers.
pub(super) const WORDS: usize = 1024;

/// One launch of one kernel of the corpus.
#[derive(Debug, Clone, Copy)]
pub(super) struct Case {
    pub(super) module: &'static str,
    pub(super) kernel: &'static str,
    /// Told apart from other cases of the kernel by this; else empty.
    pub(super) variant: &'static str,
    pub(super) blocks: u32,
    pub(super) threads: u32,
    pub(super) input: Input,
    /// `out` is `in`, not a buffer of its own.
    pub(super) in_place: bool,
    /// Declared accesses to `in`, `out` and `state`.
    pub(super) access: [Access; 3],
    /// Bytes that the launch is given of each buffer.
    pub(super) bytes: u64,
    pub(super) cooperative: bool,
    /// The kernel that a dependent launch follows.
    pub(super) after: Option<&'static str>,
    pub(super) verdict: Verdict,
    pub(super) tool: Tool,
    /// It would never end on a GPU.
    pub(super) hangs: bool,
}

impl Case {
    const fn new(module: &'static str, kernel: &'static str, blocks: u32, threads: u32) -> Case {
        Case {
            module,
            kernel,
            variant: "",
            blocks,
            threads,
            input: Input::Written,
            in_place: false,
            access: [Access::Read, Access::ReadWrite, Access::ReadWrite],
            bytes: 4 * WORDS as u64,
            cooperative: false,
            after: None,
            verdict: Verdict::Clean,
            tool: Tool::None,
            hangs: false,
        }
    }

    const fn caught(mut self, fault: &'static str, tool: Tool) -> Case {
        self.verdict = Verdict::Caught(fault);
        self.tool = tool;
        self
    }

    const fn input(mut self, input: Input, variant: &'static str) -> Case {
        self.input = input;
        self.variant = variant;
        self
    }

    const fn in_place(mut self, variant: &'static str) -> Case {
        self.in_place = true;
        self.variant = variant;
        self
    }

    /// `out` is declared to be written only.
    const fn out(mut self) -> Case {
        self.access[1] = Access::Write;
        self
    }

    const fn given(mut self, bytes: u64) -> Case {
        self.bytes = bytes;
        self
    }

    const fn cooperative(mut self) -> Case {
        self.cooperative = true;
        self
    }

    const fn after(mut self, kernel: &'static str) -> Case {
        self.after = Some(kernel);
        self
    }

    const fn hangs(mut self) -> Case {
        self.hangs = true;
        self
    }

    /// The kernel's name, with the variant's.
    pub(super) fn name(&self) -> String {
        match self.variant {
            "" => self.kernel.to_owned(),
            variant => format!("{}:{variant}", self.kernel),
        }
    }
}

const DEPENDENT: &str = "dependent_sm90";

/// All cases.
pub(super) static CASES: &[Case] = &[
    Case::new("memory", "copy_words", 8, 128),
    Case::new("memory", "copy_words", 4, 128).input(Input::HalfWritten, "written_half"),
    Case::new("memory", "copy_words", 5, 128)
        .input(Input::HalfWritten, "unwritten_half")
        .caught("uninitialised", Tool::Initcheck),
    Case::new("memory", "copy_words", 1, 32)
        .input(Input::Freed, "freed")
        .caught("use after free", Tool::Memcheck),
    Case::new("memory", "read_past_the_end", 1, 32).caught("out of bounds", Tool::Memcheck),
    Case::new("memory", "write_past_the_end", 1, 32).caught("out of bounds", Tool::Memcheck),
    Case::new("memory", "misaligned_pair", 1, 32).caught("misaligned", Tool::Memcheck),
    // Initcheck looks at global memory only.
    Case::new("memory", "shared_half_filled", 1, 64).caught("uninitialised", Tool::None),
    Case::new("memory", "shared_filled", 1, 64),
    Case::new("memory", "local_not_filled", 1, 64).caught("uninitialised", Tool::None),
    Case::new("memory", "local_filled", 1, 64),
    Case::new("shared", "reverse_without_barrier", 1, 128).caught("shared race", Tool::Racecheck),
    Case::new("shared", "reverse_with_barrier", 1, 128),
    Case::new("shared", "rounds_with_one_barrier", 1, 128).caught("shared race", Tool::Racecheck),
    Case::new("shared", "rounds_with_two_barriers", 1, 128),
    Case::new("shared", "double_buffered", 1, 128),
    Case::new("shared", "lanes_without_syncwarp", 1, 32).caught("shared race", Tool::Racecheck),
    Case::new("shared", "lanes_with_syncwarp", 1, 32),
    Case::new("shared", "shuffle_sum", 1, 128),
    Case::new("shared", "histogram", 1, 128),
    // An atomic and a plain read of one word: racecheck of CUDA 13.0 says nothing.
    Case::new("shared", "histogram_read_early", 1, 128).caught("shared race", Tool::None),
    Case::new("shared", "bytes_of_shared_words", 1, 128),
    // Half of a warp at a barrier that the other half never comes to: synccheck of CUDA 13.0 says nothing.
    Case::new("barrier", "barrier_in_some_lanes", 1, 32).caught("divergence", Tool::None),
    // Each warp executes its barrier whole: compute-sanitizer tells a warp's lanes apart, not a block's warps.
    Case::new("barrier", "barriers_on_both_sides", 1, 64).caught("divergence", Tool::None),
    Case::new("barrier", "barrier_in_a_loop", 1, 96),
    Case::new("barrier", "barrier_nobody_joins", 1, 64).caught("deadlock", Tool::None).hangs(),
    Case::new("barrier", "arrival_nobody_waits_for", 1, 64).caught("missed arrival", Tool::None),
    Case::new("barrier", "producer_and_consumer", 1, 96),
    Case::new("blocks", "all_blocks_write_one_place", 4, 64).caught("block conflict", Tool::None),
    Case::new("blocks", "neighbour_block_reads", 4, 64).caught("block conflict", Tool::None),
    Case::new("blocks", "last_block_advances", 4, 64).caught("block conflict", Tool::None),
    Case::new("blocks", "one_counter", 8, 64),
    Case::new("blocks", "counter_read_plainly", 4, 32).caught("block conflict", Tool::None),
    Case::new("blocks", "bytes_of_global_words", 4, 64),
    Case::new("blocks", "last_block_fold", 4, 64),
    Case::new("blocks", "last_block_fold_without_fence", 4, 64).caught("block conflict", Tool::None),
    Case::new("blocks", "last_block_fold_without_barrier", 4, 64).caught("block conflict", Tool::None),
    Case::new("blocks", "grid_barrier_with_fence", 4, 64).cooperative(),
    Case::new("blocks", "grid_barrier_without_fence", 4, 64)
        .cooperative()
        .caught("block conflict", Tool::None),
    Case::new("blocks", "release_and_acquire", 2, 32).cooperative(),
    Case::new("blocks", "relaxed_flag", 2, 32).cooperative().caught("block conflict", Tool::None),
    Case::new("blocks", "global_reverse_with_barrier", 1, 128),
    Case::new("blocks", "global_reverse_without_barrier", 1, 128).caught("global race", Tool::None),
    Case::new("arguments", "writes_its_input", 1, 64).caught("store through read-only", Tool::None),
    Case::new("arguments", "reads_its_output", 1, 64),
    Case::new("arguments", "reads_its_output", 1, 64)
        .out()
        .input(Input::Written, "declared_out")
        .caught("output read", Tool::None),
    Case::new("arguments", "reads_back_its_output", 1, 64).out(),
    Case::new("arguments", "writes_its_argument", 1, 64).given(256),
    Case::new("arguments", "writes_beside_its_argument", 1, 64)
        .given(256)
        .caught("outside arguments", Tool::None),
    Case::new("arguments", "writes_its_argument", 1, 64).in_place("in_place").caught("aliasing", Tool::None),
    Case::new(DEPENDENT, "waits_before_it_reads", 1, 64).after("produces"),
    Case::new(DEPENDENT, "reads_before_it_waits", 1, 64).after("produces").caught("dependency", Tool::None),
    Case::new(DEPENDENT, "writes_before_it_waits", 1, 64).after("produces").caught("dependency", Tool::None),
    Case::new(DEPENDENT, "some_threads_never_wait", 1, 64).after("produces").caught("dependency", Tool::None),
    Case::new(DEPENDENT, "a_path_without_a_wait", 1, 64).after("produces").caught("dependency", Tool::None),
];
