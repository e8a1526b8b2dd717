//! `mma.sync` and `ldmatrix`.

use super::builder::{Builder, Class, Place};
use super::memory::Target;
use super::modifiers::Modifiers;
use crate::check::Access;
use crate::ops::memory::{Shared, SharedWide};
use crate::ops::mma::{LoadMatrix, MmaBytes, MmaHalves};
use crate::ops::{Level, select};
use crate::ptx::ast::{Operand, Type};

impl Builder<'_> {
    /// Decodes a matrix instruction; `false` when it is none.
    pub(super) fn tensor(
        &mut self,
        base: &str,
        modifiers: &mut Modifiers<'_>,
        operands: &[Operand],
    ) -> Result<bool, String> {
        match (base, operands) {
            ("mma", [Operand::Vector(d), Operand::Vector(a), Operand::Vector(b), Operand::Vector(c)])
                if modifiers.take("sync") =>
            {
                self.mma(modifiers, [d, a, b, c])?;
            }
            ("ldmatrix", [d, address]) if modifiers.take("sync") => {
                self.load_matrix(modifiers, d, address)?
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn mma(&mut self, modifiers: &mut Modifiers<'_>, [d, a, b, c]: [&[Operand]; 4]) -> Result<(), String> {
        modifiers.ignore(&["aligned", "row", "col"]);
        let saturate = modifiers.take("satfinite");
        let shape = modifiers.find(|part| part.starts_with('m').then(|| part.to_string()));
        let shape = shape.ok_or("no shape")?;
        let types = [modifiers.ty()?, modifiers.ty()?, modifiers.ty()?, modifiers.ty()?];
        let level = self.level;
        let bytes = |ty| matches!(ty, Type::S8 | Type::U8);
        let (run, counts) = match (shape.as_str(), types) {
            ("m16n8k32", [Type::S32, x, y, Type::S32]) if bytes(x) && bytes(y) => {
                (select::<MmaBytes<16, 32>>(level), [4, 4, 2, 4])
            }
            ("m16n8k16", [Type::S32, x, y, Type::S32]) if bytes(x) && bytes(y) => {
                (select::<MmaBytes<16, 16>>(level), [4, 2, 1, 4])
            }
            ("m8n8k16", [Type::S32, x, y, Type::S32]) if bytes(x) && bytes(y) => {
                (select::<MmaBytes<8, 16>>(level), [2, 1, 1, 2])
            }
            ("m16n8k16", [Type::F32, Type::F16 | Type::Bf16, _, Type::F32]) if types[1] == types[2] => {
                (select::<MmaHalves<16>>(level), [4, 4, 2, 4])
            }
            ("m16n8k8", [Type::F32, Type::F16 | Type::Bf16, _, Type::F32]) if types[1] == types[2] => {
                (select::<MmaHalves<8>>(level), [4, 2, 1, 4])
            }
            _ => return Err("this shape and these types are not supported".into()),
        };
        if [d, a, b, c].iter().zip(counts).any(|(list, count)| list.len() != count) {
            return Err("wrong number of registers".into());
        }
        let mut extra = Vec::new();
        for operand in d {
            extra.push((self.dst_class(operand, Class::W32)?, true));
        }
        for operand in a.iter().chain(b).chain(c) {
            extra
                .push((self.src(operand, if types[0] == Type::F32 { Type::F32 } else { Type::B32 })?, false));
        }
        let (first, second) = if types[0] == Type::S32 {
            (u32::from(types[1] == Type::S8), u32::from(types[2] == Type::S8))
        } else {
            (u32::from(types[1] == Type::Bf16), 0)
        };
        let fields = [0, first, second, saturate.into(), 0].map(Place::Raw);
        self.push(run, fields, 0).extra = extra;
        Ok(())
    }

    fn load_matrix(
        &mut self,
        modifiers: &mut Modifiers<'_>,
        d: &Operand,
        address: &Operand,
    ) -> Result<(), String> {
        modifiers.ignore(&["aligned", "m8n8", "shared", "shared::cta", "b16"]);
        let transposed = modifiers.take("trans");
        let count = modifiers.find(|part| match part {
            "x1" => Some(1),
            "x2" => Some(2),
            "x4" => Some(4),
            _ => None,
        });
        let list = match d {
            Operand::Vector(list) => &list[..],
            d => std::slice::from_ref(d),
        };
        if count != Some(list.len()) {
            return Err("the number of registers does not match".into());
        }
        let Operand::Address(base, offset) = address else { return Err("expected an address".into()) };
        let (wide, base) = match &**base {
            base @ Operand::Reg(_) if self.class(base)? == Class::W32 => (false, self.src(base, Type::B32)?),
            base => (true, self.src(base, Type::B64)?),
        };
        let Ok(offset) = i32::try_from(*offset) else { return Err("offset is too large".into()) };
        let mut extra = Vec::new();
        for operand in list {
            extra.push((self.dst_class(operand, Class::W32)?, true));
        }
        let level = Level::Base;
        let run = match (wide, list.len()) {
            (false, 1) => select::<LoadMatrix<Shared, 1>>(level),
            (false, 2) => select::<LoadMatrix<Shared, 2>>(level),
            (false, _) => select::<LoadMatrix<Shared, 4>>(level),
            (true, 1) => select::<LoadMatrix<SharedWide, 1>>(level),
            (true, 2) => select::<LoadMatrix<SharedWide, 2>>(level),
            (true, _) => select::<LoadMatrix<SharedWide, 4>>(level),
        };
        let target = if wide { Target::SharedWide } else { Target::Shared };
        // Eight lanes a matrix supply the addresses of its rows.
        let lanes = if list.len() == 4 { u32::MAX } else { (1 << (8 * list.len())) - 1 };
        self.check_access(target, base, offset, 16, Access::LOAD, lanes);
        let fields =
            [Place::Raw(0), base, Place::Raw(offset as u32), Place::Raw(transposed.into()), Place::Raw(0)];
        self.push(run, fields, 0).extra = extra;
        Ok(())
    }
}
