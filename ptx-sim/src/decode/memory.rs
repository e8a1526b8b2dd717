//! Loads, stores, atomics and copies.

use super::builder::{Builder, Class, Place};
use super::modifiers::Modifiers;
use crate::check::Access;
use crate::ops::access::{E8, E16, E32, E64, Element, Load, LoadParam, SlowAccess, Store};
use crate::ops::atom::{Action, Atomic};
use crate::ops::check::{CheckAccess, CheckCopySource, CheckFence};
use crate::ops::control::{Fence, Nop};
use crate::ops::memory::{CopyAsync, Generic, Global, Local, LocalWide, ParamWide, Shared, SharedWide};
use crate::ops::{Handler, Level, convert, memory, select};
use crate::ptx::ast::{Operand, Space, Type};

/// Cache and eviction hints: they change nothing that a program can see.
const HINTS: [&str; 21] = [
    "nc",
    "ca",
    "cg",
    "cs",
    "lu",
    "cv",
    "wb",
    "wt",
    "L1::evict_normal",
    "L1::evict_unchanged",
    "L1::evict_first",
    "L1::evict_last",
    "L1::no_allocate",
    "L2::evict_normal",
    "L2::evict_first",
    "L2::evict_last",
    "L2::64B",
    "L2::128B",
    "L2::256B",
    "L2::cache_hint",
    "weak",
];

/// Scopes of ordered accesses: the simulator orders all of them for the whole machine.
const SCOPES: [&str; 4] = ["cta", "cluster", "gpu", "sys"];

/// The address space of an access with the width of its address registers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    Global,
    Shared,
    SharedWide,
    Local,
    LocalWide,
    Generic,
    Param,
}

/// Where a load puts a value: the word it goes to first, the 64-bit register it is widened into, and whether the
/// destination has 16 bits.
#[derive(Clone, Copy)]
struct Loaded {
    word: Place,
    wide: Option<Place>,
    narrow: bool,
}

fn by_count<S: memory::Space, E: Element>(level: Level, store: bool, count: usize) -> Handler {
    match (store, count) {
        (false, 1) => select::<Load<S, E, 1>>(level),
        (false, 2) => select::<Load<S, E, 2>>(level),
        (false, _) => select::<Load<S, E, 4>>(level),
        (true, 1) => select::<Store<S, E, 1>>(level),
        (true, 2) => select::<Store<S, E, 2>>(level),
        (true, _) => select::<Store<S, E, 4>>(level),
    }
}

fn by_bytes<S: memory::Space>(level: Level, store: bool, bytes: u32, count: usize) -> Handler {
    match (bytes, store) {
        (1, _) => by_count::<S, E8>(level, store, count),
        (2, _) => by_count::<S, E16>(level, store, count),
        (4, _) => by_count::<S, E32>(level, store, count),
        (_, false) if count == 1 => select::<Load<S, E64, 1>>(level),
        (_, false) => select::<Load<S, E64, 2>>(level),
        (_, true) if count == 1 => select::<Store<S, E64, 1>>(level),
        (_, true) => select::<Store<S, E64, 2>>(level),
    }
}

fn slow(target: Target, store: bool) -> Handler {
    fn of<S: memory::Space>(store: bool) -> Handler {
        let level = Level::Base;
        if store { select::<SlowAccess<S, true>>(level) } else { select::<SlowAccess<S, false>>(level) }
    }
    match target {
        Target::Global => of::<Global>(store),
        Target::Shared => of::<Shared>(store),
        Target::SharedWide => of::<SharedWide>(store),
        Target::Local => of::<Local>(store),
        Target::LocalWide => of::<LocalWide>(store),
        Target::Generic => of::<Generic>(store),
        Target::Param => of::<ParamWide>(store),
    }
}

fn space(part: &str) -> Option<Target> {
    Some(match part {
        "global" | "const" => Target::Global,
        "shared" | "shared::cta" => Target::SharedWide,
        "local" => Target::LocalWide,
        "param" | "param::entry" => Target::Param,
        _ => return None,
    })
}

impl Builder<'_> {
    /// Decodes a memory instruction; `false` when it is none.
    pub(super) fn memory(
        &mut self,
        base: &str,
        modifiers: &mut Modifiers<'_>,
        operands: &[Operand],
    ) -> Result<bool, String> {
        match (base, operands) {
            ("ld" | "ldu", [d, address]) => self.load_store(modifiers, false, d, address)?,
            ("ld", [d, address, _]) if modifiers.has("L2::cache_hint") => {
                self.load_store(modifiers, false, d, address)?;
            }
            ("st", [address, x]) => self.load_store(modifiers, true, x, address)?,
            ("st", [address, x, _]) if modifiers.has("L2::cache_hint") => {
                self.load_store(modifiers, true, x, address)?;
            }
            ("atom", [d, address, rest @ ..]) => self.atomic(modifiers, Some(d), address, rest)?,
            ("red", [address, rest @ ..]) => self.atomic(modifiers, None, address, rest)?,
            ("prefetch" | "prefetchu" | "applypriority" | "discard", _) => {
                modifiers.ignore(&[
                    "global",
                    "local",
                    "const",
                    "param",
                    "tensormap",
                    "L1",
                    "L2",
                    "L2::evict_normal",
                    "L2::evict_last",
                ]);
                modifiers.ignore(&["L2::128B"]);
                if base == "discard" {
                    return Err("discarded memory has no defined contents".into());
                }
            }
            ("createpolicy", [d, ..]) => {
                modifiers.ignore(&["fractional", "range", "cvt", "L2", "global", "b64"]);
                modifiers.ignore(&[
                    "L2::evict_last",
                    "L2::evict_normal",
                    "L2::evict_first",
                    "L2::evict_unchanged",
                ]);
                let d = self.dst(d, Type::B64)?;
                self.op::<crate::ops::moves::Mov64>(d, &[Place::Const64(0)]);
            }
            ("cp", operands) if modifiers.take("async") => self.copy_async(modifiers, operands)?,
            ("membar" | "fence", []) => {
                // A fence of the block's scope orders nothing between blocks.
                let narrow = modifiers.take("cta");
                modifiers
                    .ignore(&["gl", "cluster", "gpu", "sys", "sc", "acq_rel", "acquire", "release", "proxy"]);
                modifiers.ignore(&["alias", "async"]);
                if self.checked {
                    self.raw::<CheckFence>([Place::Raw(0); 5], 0).imm = i32::from(!narrow);
                }
                self.raw::<Fence>([Place::Raw(0); 5], 0);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The address of an access: its space refined by what the operand is, base place, and offset.
    fn address(&mut self, target: Option<Target>, operand: &Operand) -> Result<(Target, Place, i64), String> {
        let Operand::Address(base, offset) = operand else { return Err("expected an address".into()) };
        let target = target.unwrap_or(Target::Generic);
        if let Some((space, at)) = self.static_address(base) {
            let fits = match target {
                Target::Shared | Target::SharedWide => space == Space::Shared,
                Target::Local | Target::LocalWide => space == Space::Local,
                Target::Param => space == Space::Param,
                _ => false,
            };
            if !fits {
                return Err("the name is of another state space".into());
            }
            let at = at.wrapping_add(*offset as u64);
            return Ok(match target {
                // Offsets in these windows fit 32 bits.
                Target::SharedWide => (Target::Shared, Place::Const32(at as u32), 0),
                Target::LocalWide => (Target::Local, Place::Const32(at as u32), 0),
                target => (target, Place::Const64(at), 0),
            });
        }
        match &**base {
            Operand::Reg(_) => match (self.class(base)?, target) {
                (Class::W64, target) => Ok((target, self.src(base, Type::B64)?, *offset)),
                (Class::W32, Target::SharedWide) => Ok((Target::Shared, self.src(base, Type::B32)?, *offset)),
                (Class::W32, Target::LocalWide) => Ok((Target::Local, self.src(base, Type::B32)?, *offset)),
                _ => Err("the address's register has the wrong size".into()),
            },
            Operand::Int(address) => Ok((target, Place::Const64(address.wrapping_add(*offset as u64)), 0)),
            base => Ok((target, self.src(base, Type::B64)?, *offset)),
        }
    }

    /// In checked code, puts a check before the access that the next op makes.
    pub(super) fn check_access(
        &mut self,
        target: Target,
        base: Place,
        offset: i32,
        bytes: u32,
        access: Access,
        lanes: u32,
    ) {
        if !self.checked {
            return;
        }
        let level = Level::Base;
        let run = match target {
            Target::Global => select::<CheckAccess<Global>>(level),
            Target::Shared => select::<CheckAccess<Shared>>(level),
            Target::SharedWide => select::<CheckAccess<SharedWide>>(level),
            Target::Local => select::<CheckAccess<Local>>(level),
            Target::LocalWide => select::<CheckAccess<LocalWide>>(level),
            Target::Generic => select::<CheckAccess<Generic>>(level),
            Target::Param => select::<CheckAccess<ParamWide>>(level),
        };
        let extra = [bytes, offset as u32, access.code(), lanes];
        let fields = [Place::Raw(0), base, Place::Raw(0), Place::Raw(0), Place::Raw(0)];
        self.push(run, fields, 0).extra = extra.map(|n| (Place::Raw(n), false)).to_vec();
    }

    /// Splits an offset that does not fit an op's immediate.
    fn immediate(&mut self, target: Target, base: Place, offset: i64) -> (Place, i32) {
        if let Ok(small) = i32::try_from(offset) {
            return (base, small);
        }
        if matches!(target, Target::Shared | Target::Local) {
            // Far outside whatever the base: let it fault.
            return (base, i32::MIN);
        }
        let sum = self.temp(Class::W64);
        self.op::<crate::ops::int::Add64>(sum, &[base, Place::Const64(offset as u64)]);
        (sum, 0)
    }

    fn load_store(
        &mut self,
        modifiers: &mut Modifiers<'_>,
        store: bool,
        values: &Operand,
        address: &Operand,
    ) -> Result<(), String> {
        modifiers.ignore(&HINTS);
        let narrow = modifiers.take("cta");
        modifiers.ignore(&SCOPES);
        let acquire = modifiers.take("acquire");
        let release = modifiers.take("release");
        let relaxed = modifiers.take("relaxed") | modifiers.take("volatile") | modifiers.take("mmio");
        let access = match (store, release, acquire || relaxed) {
            (false, _, false) => Access::LOAD,
            (false, _, true) => Access::ORDERED_LOAD,
            (true, true, _) => Access::ORDERED_STORE.releasing(),
            (true, false, true) => Access::ORDERED_STORE,
            (true, false, false) => Access::STORE,
        };
        let access = if narrow { access.narrow() } else { access };
        let count = modifiers.find(|part| match part {
            "v2" => Some(2),
            "v4" => Some(4),
            "v8" => Some(8),
            _ => None,
        });
        let target = modifiers.find(space);
        let ty = modifiers.ty()?;
        let list = match (count, values) {
            (None, value) => std::slice::from_ref(value),
            (Some(n), Operand::Vector(list)) if list.len() == n => list,
            _ => return Err("the vector's length does not match".into()),
        };
        if list.len() > 4 || ty.bytes() as usize * list.len() > 16 || !matches!(ty.bits(), 8 | 16 | 32 | 64) {
            return Err("accesses above 16 bytes are not supported".into());
        }
        let (target, base, offset) = self.address(target, address)?;
        if release {
            self.raw::<Fence>([Place::Raw(0); 5], 0);
        }
        if target == Target::Param
            && let Place::Const64(at) = base
        {
            if store {
                return Err("parameters of calls are not supported".into());
            }
            return self.load_parameters(ty, list, at.wrapping_add(offset as u64));
        }
        let (base, imm) = self.immediate(target, base, offset);
        let mut fields = [Place::Raw(0), base, Place::Raw(0), Place::Raw(0), Place::Raw(0)];
        let mut after = Vec::new();
        for (i, operand) in list.iter().enumerate() {
            let place = if store {
                self.stored(operand, ty)?
            } else {
                let loaded = self.loaded(operand, ty)?;
                after.push(loaded);
                loaded.word
            };
            fields[[0, 2, 3, 4][i]] = place;
        }
        // With fewer values than registers the unused fields are raw zeros, which no variant touches.
        let defs = if store { 0 } else { [0b1, 0b101, 0, 0b11101][list.len() - 1] };
        self.check_access(target, base, imm, ty.bytes() * list.len() as u32, access, u32::MAX);
        if matches!(target, Target::Global | Target::Shared) {
            let bytes = ty.bytes();
            let run = match target {
                Target::Global => by_bytes::<Global>(self.level, store, bytes, list.len()),
                _ => by_bytes::<Shared>(self.level, store, bytes, list.len()),
            };
            self.push(run, fields, defs).imm = imm;
        } else {
            let extra = [ty.bytes(), list.len() as u32, imm as u32];
            self.push(slow(target, store), fields, defs).extra =
                extra.map(|n| (Place::Raw(n), false)).to_vec();
        }
        for loaded in after {
            self.extend_loaded(loaded, ty);
        }
        if acquire {
            self.raw::<Fence>([Place::Raw(0); 5], 0);
        }
        Ok(())
    }

    /// Where a loaded value goes.
    fn loaded(&mut self, operand: &Operand, ty: Type) -> Result<Loaded, String> {
        let class = match operand {
            Operand::Sink => Class::of(ty)?,
            operand => self.class(operand)?,
        };
        if !matches!(operand, Operand::Sink) && self.declared_bits(operand) < ty.bits() {
            return Err("the destination's register is too small".into());
        }
        let place = self.dst_class(operand, class)?;
        let wide = (class == Class::W64 && ty.bits() < 64).then_some(place);
        let word = if wide.is_some() { self.temp(Class::W32) } else { place };
        Ok(Loaded { word, wide, narrow: self.declared_bits(operand) <= 16 })
    }

    /// Extends a loaded value, which is zero-extended in its word, by its sign and to its register's size.
    fn extend_loaded(&mut self, loaded: Loaded, ty: Type) {
        let Loaded { word, wide, narrow } = loaded;
        let bits = ty.bits();
        if ty.signed() && bits < 32 && !(narrow && bits == 16) {
            let shift = 32 - bits as i32;
            if narrow {
                self.op::<convert::SignExtend16>(word, &[word]).imm = shift;
            } else {
                self.op::<convert::SignExtend>(word, &[word]).imm = shift;
            }
        }
        if let Some(wide) = wide {
            if ty.signed() {
                self.op::<convert::Sext64>(wide, &[word]);
            } else {
                self.op::<convert::Zext64>(wide, &[word]);
            }
        }
    }

    /// A value to store, whose register may be wider than the type.
    fn stored(&mut self, operand: &Operand, ty: Type) -> Result<Place, String> {
        let class = match operand {
            Operand::Reg(_) => self.class(operand)?,
            _ => Class::of(ty)?,
        };
        if class == Class::W64 && ty.bits() < 64 {
            let wide = self.src(operand, Type::B64)?;
            let word = self.temp(Class::W32);
            self.op::<convert::Truncate64>(word, &[wide]);
            return Ok(word);
        }
        let as_type = match (class, ty) {
            (_, Type::F32 | Type::F64) => ty,
            (Class::W64, _) => Type::B64,
            _ => Type::B32,
        };
        self.src(operand, as_type)
    }

    fn load_parameters(&mut self, ty: Type, list: &[Operand], at: u64) -> Result<(), String> {
        let bytes = self.params.1;
        let size = u64::from(ty.bytes());
        if at > bytes.into() || size * list.len() as u64 > u64::from(bytes) - at {
            return Err("reads beyond the parameters".into());
        }
        for (i, operand) in list.iter().enumerate() {
            let loaded = self.loaded(operand, ty)?;
            let level = Level::Base;
            let run = match ty.bits() {
                8 => select::<LoadParam<E8>>(level),
                16 => select::<LoadParam<E16>>(level),
                32 => select::<LoadParam<E32>>(level),
                _ => select::<LoadParam<E64>>(level),
            };
            let zero = Place::Raw(0);
            self.push(run, [loaded.word, zero, zero, zero, zero], 1).imm = (at + size * i as u64) as i32;
            self.extend_loaded(loaded, ty);
        }
        Ok(())
    }

    fn atomic(
        &mut self,
        modifiers: &mut Modifiers<'_>,
        d: Option<&Operand>,
        address: &Operand,
        rest: &[Operand],
    ) -> Result<(), String> {
        let release = modifiers.take("release") | modifiers.take("acq_rel");
        let access = if release { Access::UPDATE.releasing() } else { Access::UPDATE };
        let access = if modifiers.take("cta") { access.narrow() } else { access };
        modifiers.ignore(&["relaxed", "acquire", "async"]);
        modifiers.ignore(&SCOPES);
        let target = modifiers.find(space);
        let action = modifiers.find(|part| match part {
            "add" | "and" | "or" | "xor" | "exch" | "min" | "max" | "inc" | "dec" | "cas" => {
                Some(part.to_string())
            }
            _ => None,
        });
        let ty = modifiers.ty()?;
        if matches!(ty, Type::F16 | Type::F16x2 | Type::Bf16 | Type::Bf16x2 | Type::F32 | Type::F64) {
            return Err(
                "floating-point atomics are refused: their result depends on the order of threads".into()
            );
        }
        if !matches!(ty.bits(), 32 | 64) {
            return Err("only 32 and 64 bits are supported".into());
        }
        let Some(action) = action else { return Err("no operation".into()) };
        let action = match (action.as_str(), ty.signed()) {
            ("add", _) => Action::Add,
            ("and", _) => Action::And,
            ("or", _) => Action::Or,
            ("xor", _) => Action::Xor,
            ("exch", _) => Action::Exchange,
            ("min", false) => Action::MinU,
            ("min", true) => Action::MinS,
            ("max", false) => Action::MaxU,
            ("max", true) => Action::MaxS,
            ("inc", _) => Action::Inc,
            ("dec", _) => Action::Dec,
            _ => Action::CompareSwap,
        };
        let (b, c) = match (action, rest) {
            (Action::CompareSwap, [b, c]) => (self.src(b, ty)?, self.src(c, ty)?),
            (_, [b]) if action != Action::CompareSwap => (self.src(b, ty)?, Place::Raw(0)),
            _ => return Err("wrong number of operands".into()),
        };
        let (target, base, offset) = self.address(target, address)?;
        let (base, offset) = self.immediate(target, base, offset);
        let wide = ty.bits() == 64;
        let (out, unwanted) = match d {
            Some(Operand::Sink) | None => (Place::Raw(0), 0x100),
            Some(d) => (self.dst(d, ty)?, 0),
        };
        // One lane after the other whatever the instruction set.
        let level = Level::Base;
        let run = match (target, wide) {
            (Target::Global, false) => select::<Atomic<Global, u32>>(level),
            (Target::Global, true) => select::<Atomic<Global, u64>>(level),
            (Target::Shared, false) => select::<Atomic<Shared, u32>>(level),
            (Target::Shared, true) => select::<Atomic<Shared, u64>>(level),
            (Target::SharedWide, false) => select::<Atomic<SharedWide, u32>>(level),
            (Target::SharedWide, true) => select::<Atomic<SharedWide, u64>>(level),
            (Target::Generic, false) => select::<Atomic<Generic, u32>>(level),
            (Target::Generic, true) => select::<Atomic<Generic, u64>>(level),
            _ => return Err("atomics work on global and shared memory".into()),
        };
        let defs = u8::from(unwanted == 0);
        self.check_access(target, base, offset, ty.bytes(), access, u32::MAX);
        let fields = [out, base, b, c, Place::Raw(offset as u32)];
        self.push(run, fields, defs).imm = action as i32 | unwanted;
        Ok(())
    }

    fn copy_async(&mut self, modifiers: &mut Modifiers<'_>, operands: &[Operand]) -> Result<(), String> {
        if modifiers.take("commit_group") || modifiers.take("wait_group") || modifiers.take("wait_all") {
            // Copies are done when issued.
            self.raw::<Nop>([Place::Raw(0); 5], 0);
            return Ok(());
        }
        modifiers.ignore(&HINTS);
        let order = modifiers.take("shared") | modifiers.take("shared::cta");
        if !order || !modifiers.take("global") {
            return Err("only copies from global to shared memory are supported".into());
        }
        let [to, from, Operand::Int(bytes), rest @ ..] = operands else {
            return Err("needs two addresses and a size".into());
        };
        if !matches!(bytes, 4 | 8 | 16) {
            return Err("copies 4, 8 or 16 bytes".into());
        }
        let size = Place::Const32(*bytes as u32);
        let read = match rest {
            [] => size,
            [operand @ (Operand::Int(_) | Operand::Reg(_))] => match operand {
                Operand::Reg(_) if self.class(operand)? == Class::Pred => {
                    let ignore = self.predicate(operand)?;
                    let read = self.temp(Class::W32);
                    self.op::<crate::ops::moves::Sel32>(read, &[Place::Const32(0), size, ignore]);
                    read
                }
                operand => self.src(operand, Type::U32)?,
            },
            _ => return Err("unsupported operands".into()),
        };
        let (target, to, to_offset) = self.address(Some(Target::SharedWide), to)?;
        let (to, to_offset) = self.immediate(target, to, to_offset);
        let (_, from, from_offset) = self.address(Some(Target::Global), from)?;
        let (from, from_offset) = self.immediate(Target::Global, from, from_offset);
        // The first check runs the second in its step, and that the copy.
        if self.checked {
            let extra = [*bytes as u32, from_offset as u32, Access::LOAD.code(), u32::MAX];
            let fields = [Place::Raw(0), from, read, Place::Raw(0), Place::Raw(0)];
            let check = self.push(select::<CheckCopySource<Global>>(Level::Base), fields, 0);
            check.extra = extra.map(|n| (Place::Raw(n), false)).to_vec();
        }
        self.check_access(target, to, to_offset, *bytes as u32, Access::STORE, u32::MAX);
        let fields = [Place::Raw(to_offset as u32), to, from, read, Place::Raw(from_offset as u32)];
        let run = match target {
            Target::Shared => select::<CopyAsync<Shared>>(self.level),
            _ => select::<CopyAsync<SharedWide>>(self.level),
        };
        self.push(run, fields, 0).imm = *bytes as i32;
        Ok(())
    }
}
