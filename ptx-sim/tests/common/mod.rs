//! What the tests share: running one PTX body over 32 or more threads.
#![allow(dead_code, reason = "each test file uses a part")]

use ptx_sim::{ExecOptions, Fault, LaunchConfig, Memory, Module};

/// A launch for tests: an entry's text, grid, block, and its parameters.
pub struct Run<'a> {
    pub module: &'a Module,
    pub memory: &'a Memory,
    pub entry: &'a str,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub dynamic_shared: u32,
    pub cooperative: bool,
    pub threads: usize,
}

impl<'a> Run<'a> {
    pub fn new(module: &'a Module, memory: &'a Memory, entry: &'a str) -> Run<'a> {
        Run {
            module,
            memory,
            entry,
            grid: [1; 3],
            block: [32, 1, 1],
            dynamic_shared: 0,
            cooperative: false,
            threads: 1,
        }
    }

    pub fn grid(mut self, blocks: u32) -> Self {
        self.grid = [blocks, 1, 1];
        self
    }

    pub fn block(mut self, threads: u32) -> Self {
        self.block = [threads, 1, 1];
        self
    }

    pub fn go(&self, params: &[u8]) -> Result<ptx_sim::LaunchStats, Fault> {
        let launch = LaunchConfig {
            kernel: self.module.entry(self.entry).expect("the entry"),
            grid: self.grid,
            block: self.block,
            dynamic_shared: self.dynamic_shared,
            params,
            device: 0,
            access: &[],
            cooperative: self.cooperative,
            programmatic: false,
        };
        let options =
            ExecOptions { threads: self.threads, budget: Some(50_000_000), ..ExecOptions::default() };
        ptx_sim::exec::run(self.memory, &launch, &options)
    }
}

/// Parses a module, with the header that all tests need.
pub fn module(body: &str) -> Module {
    let text = format!(".version 9.0\n.target sm_90\n.address_size 64\n{body}");
    Module::parse("test", &text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Pointers and numbers as a parameter block of 8-byte values.
pub fn params(values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

/// An allocation holding 32-bit words.
pub fn words(memory: &Memory, name: &str, values: &[u32]) -> u64 {
    let address = memory.allocate(0, 4 * values.len().max(1) as u64, name).unwrap();
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    memory.write(address, &bytes).unwrap();
    address
}

/// An allocation holding 64-bit words.
pub fn wide(memory: &Memory, name: &str, values: &[u64]) -> u64 {
    let address = memory.allocate(0, 8 * values.len().max(1) as u64, name).unwrap();
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    memory.write(address, &bytes).unwrap();
    address
}

/// `n` 32-bit words at `address`.
pub fn read_words(memory: &Memory, address: u64, n: usize) -> Vec<u32> {
    let mut bytes = vec![0; 4 * n];
    memory.read(address, &mut bytes).unwrap();
    bytes.chunks_exact(4).map(|c| u32::from_le_bytes(c.try_into().unwrap())).collect()
}

/// `n` 64-bit words at `address`.
pub fn read_wide(memory: &Memory, address: u64, n: usize) -> Vec<u64> {
    let mut bytes = vec![0; 8 * n];
    memory.read(address, &mut bytes).unwrap();
    bytes.chunks_exact(8).map(|c| u64::from_le_bytes(c.try_into().unwrap())).collect()
}

/// Runs `instruction` on up to three 64-bit operands a lane and returns a 64-bit result a lane. The instruction sees
/// `%a %b %c` (32 bits), `%wa %wb %wc` (64), `%ha %hb %hc` (16), predicates `%p %q`, and writes `%d`, `%wd`, `%hd` or
/// `%p`; `result` names the one to keep (`d`, `wd`, `hd`, `p`).
pub fn each(instruction: &str, result: &str, inputs: &[[u64; 3]]) -> Vec<u64> {
    let keep = match result {
        "wd" => "mov.b64 %out, %wd;".to_string(),
        "hd" => "cvt.u64.u16 %out, %hd;".to_string(),
        "p" => "selp.u32 %d, 1, 0, %p; cvt.u64.u32 %out, %d;".to_string(),
        _ => "cvt.u64.u32 %out, %d;".to_string(),
    };
    let text = format!(
        "
.visible .entry k(.param .u64 in, .param .u64 out, .param .u64 n) .maxntid 128, 1, 1 {{
 .reg .b64 %in, %o, %n, %i, %at, %out, %wa, %wb, %wc, %wd, %we;
 .reg .b32 %a, %b, %c, %d, %e, %f, %t;
 .reg .b16 %ha, %hb, %hc, %hd, %he;
 .reg .pred %p, %q, %r;
 ld.param.u64 %in, [in]; ld.param.u64 %o, [out]; ld.param.u64 %n, [n];
 mov.u32 %a, %ctaid.x; mov.u32 %b, %ntid.x; mov.u32 %c, %tid.x;
 mad.lo.u32 %a, %a, %b, %c; cvt.u64.u32 %i, %a;
 setp.ge.u64 %p, %i, %n;
 @%p bra END;
 mad.lo.u64 %at, %i, 24, %in;
 ld.global.u64 %wa, [%at]; ld.global.u64 %wb, [%at+8]; ld.global.u64 %wc, [%at+16];
 cvt.u32.u64 %a, %wa; cvt.u32.u64 %b, %wb; cvt.u32.u64 %c, %wc;
 cvt.u16.u64 %ha, %wa; cvt.u16.u64 %hb, %wb; cvt.u16.u64 %hc, %wc;
 setp.ne.u32 %q, %c, 0; mov.b32 %d, 0; mov.b64 %wd, 0; mov.b16 %hd, 0;
 {instruction}
 {keep}
 mad.lo.u64 %at, %i, 8, %o;
 st.global.u64 [%at], %out;
END:
 ret;
}}"
    );
    let module = module(&text);
    let memory = Memory::new();
    let flat: Vec<u64> = inputs.iter().flatten().copied().collect();
    let input = wide(&memory, "in", &flat);
    let output = wide(&memory, "out", &vec![0xdead; inputs.len()]);
    let blocks = inputs.len().div_ceil(128) as u32;
    let stats = Run::new(&module, &memory, "k").grid(blocks).block(128).go(&params(&[
        input,
        output,
        inputs.len() as u64,
    ]));
    stats.unwrap_or_else(|fault| panic!("{instruction}: {fault}"));
    read_wide(&memory, output, inputs.len())
}

/// Bit patterns worth trying in every operand: zeros, ones, limits, powers, subnormals, infinities, NaNs.
pub fn patterns32() -> Vec<u32> {
    let mut out = vec![
        0,
        1,
        2,
        3,
        7,
        8,
        15,
        16,
        31,
        32,
        33,
        63,
        64,
        127,
        128,
        255,
        256,
        0x7fff,
        0x8000,
        0xffff,
        0x10000,
        0x7fff_ffff,
        0x8000_0000,
        0x8000_0001,
        0xffff_fffe,
        0xffff_ffff,
        0x3f80_0000,
        0xbf80_0000,
        0x3f00_0000,
        0x4000_0000,
        0x7f80_0000,
        0xff80_0000,
        0x7f7f_ffff,
        0xff7f_ffff,
        0x0080_0000,
        0x007f_ffff,
        0x8000_0001,
        0x7fc0_0000,
        0x7f80_0001,
        0xffc0_1234,
        0x4b00_0000,
        0x4f00_0000,
        0xcf00_0000,
        0x4f80_0000,
        0x3fc0_0000,
        0x4020_0000,
        0x4b7f_ffff,
        0x3f80_0001,
        0x3eff_ffff,
        0x5f00_0000,
        0x1234_5678,
        0x9abc_def0,
    ];
    let mut state = 0x2545_f491u32;
    for _ in 0..24 {
        state = state.wrapping_mul(0x0019_660d).wrapping_add(0x3c6e_f35f);
        out.push(state ^ state >> 13);
    }
    out
}

/// All triples of a short list, or pairs and triples sampled from a long one.
pub fn triples(values: &[u64]) -> Vec<[u64; 3]> {
    let n = values.len();
    let mut out = Vec::new();
    for i in 0..n {
        for j in 0..n {
            out.push([values[i], values[j], values[(i * 7 + j * 13 + 5) % n]]);
        }
    }
    out
}

/// Runs this test program again without the wide variants of the lane loops, unless it is such a run.
pub fn again_on_every_instruction_set() {
    if std::env::var_os("PTX_SIM_ISA").is_some() {
        return;
    }
    let out = std::process::Command::new(std::env::current_exe().unwrap())
        .env("PTX_SIM_ISA", "base")
        .output()
        .unwrap();
    assert!(out.status.success(), "base:\n{}", String::from_utf8_lossy(&out.stdout));
}

/// Checks `instruction` against `expected` on every input.
pub fn check(instruction: &str, result: &str, inputs: &[[u64; 3]], expected: impl Fn(u64, u64, u64) -> u64) {
    let got = each(instruction, result, inputs);
    for (input, got) in inputs.iter().zip(got) {
        let [a, b, c] = *input;
        let want = expected(a, b, c);
        assert!(got == want, "{instruction} of {a:#x}, {b:#x}, {c:#x}: got {got:#x}, expected {want:#x}");
    }
}
