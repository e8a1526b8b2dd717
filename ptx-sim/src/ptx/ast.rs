//! The syntax tree of a PTX module.

/// A scalar type, as it appears in declarations and as an opcode's modifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub(crate) enum Type {
    Pred,
    B8,
    B16,
    B32,
    B64,
    B128,
    U8,
    U16,
    U32,
    U64,
    S8,
    S16,
    S32,
    S64,
    F16,
    F16x2,
    Bf16,
    Bf16x2,
    F32,
    F64,
    U16x2,
    S16x2,
    Tf32,
    E4m3x2,
    E5m2x2,
    S4,
    U4,
    B1,
}

impl Type {
    /// The type written as `text`, without its dot.
    pub(crate) fn parse(text: &str) -> Option<Type> {
        Some(match text {
            "pred" => Type::Pred,
            "b1" => Type::B1,
            "b8" => Type::B8,
            "b16" => Type::B16,
            "b32" => Type::B32,
            "b64" => Type::B64,
            "b128" => Type::B128,
            "u4" => Type::U4,
            "u8" => Type::U8,
            "u16" => Type::U16,
            "u32" => Type::U32,
            "u64" => Type::U64,
            "s4" => Type::S4,
            "s8" => Type::S8,
            "s16" => Type::S16,
            "s32" => Type::S32,
            "s64" => Type::S64,
            "f16" => Type::F16,
            "f16x2" => Type::F16x2,
            "bf16" => Type::Bf16,
            "bf16x2" => Type::Bf16x2,
            "tf32" => Type::Tf32,
            "f32" => Type::F32,
            "f64" => Type::F64,
            "u16x2" => Type::U16x2,
            "s16x2" => Type::S16x2,
            "e4m3x2" => Type::E4m3x2,
            "e5m2x2" => Type::E5m2x2,
            _ => return None,
        })
    }

    /// Size in bits (predicates count as 1).
    pub(crate) fn bits(self) -> u32 {
        match self {
            Type::Pred | Type::B1 => 1,
            Type::S4 | Type::U4 => 4,
            Type::B8 | Type::U8 | Type::S8 => 8,
            Type::B16 | Type::U16 | Type::S16 | Type::F16 | Type::Bf16 | Type::E4m3x2 | Type::E5m2x2 => 16,
            Type::B32
            | Type::U32
            | Type::S32
            | Type::F32
            | Type::Tf32
            | Type::F16x2
            | Type::Bf16x2
            | Type::U16x2
            | Type::S16x2 => 32,
            Type::B64 | Type::U64 | Type::S64 | Type::F64 => 64,
            Type::B128 => 128,
        }
    }

    /// Size in bytes, at least 1.
    pub(crate) fn bytes(self) -> u32 {
        (self.bits() / 8).max(1)
    }

    /// Whether it is a signed integer.
    pub(crate) fn signed(self) -> bool {
        matches!(self, Type::S8 | Type::S16 | Type::S32 | Type::S64 | Type::S4 | Type::S16x2)
    }

    /// Whether it is an integer (signed, unsigned or untyped bits) of one element.
    pub(crate) fn integer(self) -> bool {
        matches!(
            self,
            Type::B8
                | Type::B16
                | Type::B32
                | Type::B64
                | Type::U8
                | Type::U16
                | Type::U32
                | Type::U64
                | Type::S8
                | Type::S16
                | Type::S32
                | Type::S64
        )
    }
}

/// A state space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub(crate) enum Space {
    Global,
    Const,
    Shared,
    Local,
    Param,
}

/// A variable of any state space.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Variable {
    pub(crate) name: String,
    pub(crate) space: Space,
    pub(crate) align: u32,
    /// Size in bytes; `None` for `extern` arrays without bounds.
    pub(crate) size: Option<u64>,
    /// Initial bytes; what is missing up to `size` is zero.
    pub(crate) init: Vec<u8>,
    pub(crate) line: u32,
}

/// A parameter of a function.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ParamDecl {
    pub(crate) name: String,
    pub(crate) size: u32,
    pub(crate) align: u32,
}

/// An operand. Names are text after parsing; resolving replaces them.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Operand {
    /// An identifier not yet resolved; after resolving, a symbol of the module or a parameter.
    Name(String),
    /// A register.
    Reg(RegId),
    /// `!p`.
    Not(Box<Operand>),
    /// `-x`, for a register or a name.
    Neg(Box<Operand>),
    /// An integer, in two's complement.
    Int(u64),
    /// `0f…`.
    F32(u32),
    /// `0d…`, or a decimal float.
    F64(u64),
    /// A special register such as `%tid.x`.
    Special(String),
    /// A label of this function.
    Label(LabelId),
    /// A variable declared in this function.
    Local(usize),
    /// A table of branch targets of this function.
    Table(usize),
    /// `[base + offset]`.
    Address(Box<Operand>, i64),
    /// `name + offset` as a value.
    Offset(Box<Operand>, i64),
    /// `{a, b, …}`.
    Vector(Vec<Operand>),
    /// `a|b`.
    Pair(Box<Operand>, Box<Operand>),
    /// `_`.
    Sink,
    /// `(a, b)` of a call.
    List(Vec<Operand>),
}

/// A register of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct RegId(pub(crate) u32);

/// A label of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct LabelId(pub(crate) u32);

/// One instruction.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Instruction {
    pub(crate) line: u32,
    /// The guard predicate and whether it is negated.
    pub(crate) guard: Option<(Operand, bool)>,
    /// The opcode with all its modifiers, as written.
    pub(crate) opcode: String,
    pub(crate) operands: Vec<Operand>,
}

/// One statement of a body, before names are resolved.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Statement {
    /// `.reg .type prefix<count>` (or one register, without a count).
    Reg {
        ty: Type,
        name: String,
        count: Option<u32>,
        line: u32,
    },
    Var(Variable),
    Label {
        name: String,
        line: u32,
    },
    /// `name: .branchtargets a, b, c;`
    Targets {
        name: String,
        labels: Vec<String>,
        line: u32,
    },
    Inst(Instruction),
    Scope(Vec<Statement>),
}

/// A function or entry.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) entry: bool,
    pub(crate) params: Vec<ParamDecl>,
    pub(crate) max_ntid: Option<[u32; 3]>,
    pub(crate) req_ntid: Option<[u32; 3]>,
    pub(crate) line: u32,
    /// `None` for a declaration.
    pub(crate) body: Option<Vec<Statement>>,
}

/// A module.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ModuleAst {
    pub(crate) version: (u32, u32),
    pub(crate) target: String,
    pub(crate) variables: Vec<Variable>,
    pub(crate) functions: Vec<Function>,
}
