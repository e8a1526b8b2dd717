//! Writing PTX: registers by the dozen, one entry at a time.

use super::form::Type;
use std::fmt::Write;

/// The body of an entry under construction.
#[derive(Debug, Default)]
pub(super) struct Asm {
    body: String,
    declarations: String,
    registers: [u32; 4],
    labels: u32,
}

/// The registers that every probe starts with.
#[derive(Debug, Clone)]
pub(super) struct Frame {
    /// Address of the inputs.
    pub(super) input: String,
    /// Address of the outputs.
    pub(super) output: String,
    /// Number of this thread in the grid, 32 bits.
    pub(super) index: String,
    /// Number of this thread in its block, 32 bits.
    pub(super) thread: String,
}

impl Asm {
    /// A new predicate register.
    pub(super) fn pred(&mut self) -> String {
        self.register(0, "%p")
    }

    /// A new 16-bit register.
    pub(super) fn r16(&mut self) -> String {
        self.register(1, "%h")
    }

    /// A new 32-bit register.
    pub(super) fn r32(&mut self) -> String {
        self.register(2, "%r")
    }

    /// A new 64-bit register.
    pub(super) fn r64(&mut self) -> String {
        self.register(3, "%d")
    }

    /// A new register for a value of `ty`.
    pub(super) fn register_for(&mut self, ty: Type) -> String {
        match ty {
            Type::Pred => self.pred(),
            _ => match ty.register_bits() {
                16 => self.r16(),
                64 => self.r64(),
                _ => self.r32(),
            },
        }
    }

    fn register(&mut self, kind: usize, prefix: &str) -> String {
        self.registers[kind] += 1;
        format!("{prefix}{}", self.registers[kind] - 1)
    }

    /// A new label's name.
    pub(super) fn label(&mut self) -> String {
        self.labels += 1;
        format!("L{}", self.labels)
    }

    /// One instruction, label (`name:`) or scope (`{ … }`).
    pub(super) fn put(&mut self, text: impl AsRef<str>) {
        let text = text.as_ref();
        let end = if text.ends_with(':') || text.starts_with('{') { "" } else { ";" };
        let _ = writeln!(self.body, "\t{text}{end}");
    }

    /// A declaration at the top of the body.
    pub(super) fn declare(&mut self, text: impl AsRef<str>) {
        let _ = writeln!(self.declarations, "\t{};", text.as_ref());
    }

    /// Loads the two pointers and the thread's numbers.
    pub(super) fn frame(&mut self) -> Frame {
        let (input, output) = (self.r64(), self.r64());
        let [thread, block, size, index] = [(); 4].map(|()| self.r32());
        self.put(format!("ld.param.u64 {input}, [p_in]"));
        self.put(format!("ld.param.u64 {output}, [p_out]"));
        for pointer in [&input, &output] {
            self.put(format!("cvta.to.global.u64 {pointer}, {pointer}"));
        }
        self.put(format!("mov.u32 {thread}, %tid.x"));
        self.put(format!("mov.u32 {block}, %ctaid.x"));
        self.put(format!("mov.u32 {size}, %ntid.x"));
        self.put(format!("mad.lo.s32 {index}, {block}, {size}, {thread}"));
        Frame { input, output, index, thread }
    }

    /// `base + index · stride` in a new register.
    pub(super) fn element(&mut self, base: &str, index: &str, stride: usize) -> String {
        let address = self.r64();
        self.put(format!("mul.wide.u32 {address}, {index}, {stride}"));
        self.put(format!("add.s64 {address}, {address}, {base}"));
        address
    }

    /// Loads a value of `ty` from a slot of 8 bytes.
    pub(super) fn load(&mut self, ty: Type, address: &str, offset: usize) -> String {
        let register = self.register_for(ty);
        if ty == Type::Pred {
            let word = self.r32();
            self.put(format!("ld.global.u32 {word}, [{address}+{offset}]"));
            self.put(format!("setp.ne.s32 {register}, {word}, 0"));
        } else {
            let bits = ty.register_bits();
            self.put(format!("ld.global.u{bits} {register}, [{address}+{offset}]"));
        }
        register
    }

    /// Stores a value of `ty` to a slot of 8 bytes.
    pub(super) fn store(&mut self, ty: Type, address: &str, offset: usize, register: &str) {
        if ty == Type::Pred {
            let word = self.r32();
            self.put(format!("selp.b32 {word}, 1, 0, {register}"));
            self.put(format!("st.global.u32 [{address}+{offset}], {word}"));
        } else {
            let bits = ty.register_bits();
            self.put(format!("st.global.u{bits} [{address}+{offset}], {register}"));
        }
    }

    /// The entry: parameters `p_in` and `p_out`, then `extra` parameters (`.param …`), then the body.
    pub(super) fn entry(self, name: &str, extra: &[String]) -> String {
        let mut out = format!(".visible .entry {name}(\n\t.param .u64 p_in,\n\t.param .u64 p_out");
        for parameter in extra {
            let _ = write!(out, ",\n\t{parameter}");
        }
        out.push_str("\n)\n{\n");
        for (ty, prefix, n) in [(".pred", "%p", 0), (".b16", "%h", 1), (".b32", "%r", 2), (".b64", "%d", 3)] {
            if self.registers[n] > 0 {
                let _ = writeln!(out, "\t.reg {ty} {prefix}<{}>;", self.registers[n]);
            }
        }
        out.push_str(&self.declarations);
        out.push_str(&self.body);
        out.push_str("\tret;\n}\n");
        out
    }
}

/// A constant as an operand of `ty`.
pub(super) fn constant(ty: Type, bits: u64) -> String {
    match ty {
        Type::F32 => format!("0f{:08X}", bits as u32),
        Type::F64 => format!("0d{bits:016X}"),
        Type::Pred => if bits & 1 == 1 { "-1" } else { "0" }.into(),
        Type::S16 | Type::B16 => (bits as u16 as i16).to_string(),
        Type::S32 | Type::B32 => (bits as u32 as i32).to_string(),
        Type::S64 | Type::B64 => (bits as i64).to_string(),
        _ => bits.to_string(),
    }
}
