//! Probes of operations across a warp: shuffles, votes, matches and reductions, against a model of 32 lanes.

use super::asm::Asm;
use super::form::{Modifiers, Type};
use super::inputs::Random;
use super::probe::{Launch, POISON, Probe, entry_name, slot};

/// The lanes that take part: all, or the lower or upper half in a branch of its own, or those with an odd number.
const MASKS: [u32; 4] = [u32::MAX, 0x0000_ffff, 0xffff_0000, 0xaaaa_aaaa];
const WARPS: usize = 64;

/// What the lanes of one warp hold: two words and a predicate each.
type Lanes = [[u32; 3]; 32];

/// A typed result.
type Typed = (Type, u64);

/// Writes the instruction and names the registers of its results.
type Writer = dyn Fn(&mut Asm, &[String; 3], &str) -> Vec<(Type, String)>;

/// The results of a lane.
type Model = dyn Fn(&Lanes, u32, usize) -> Option<Vec<Typed>>;

/// One instruction to probe: how it is written, and what each lane of `mask` gets.
struct Collective {
    /// The instruction, given the registers of two words, a predicate, the mask and a result.
    write: Box<Writer>,
    /// The results of a lane; none when the PTX ISA leaves them undefined.
    model: Box<Model>,
}

/// The probe of a warp operation; none when it is none, or not known.
pub(super) fn probe(form: &str) -> Option<Probe> {
    let (opcode, note) = form.split_once(' ').map_or((form, None), |(opcode, note)| (opcode, Some(note)));
    let mut m = Modifiers::new(opcode);
    let collectives = match (m.name, note) {
        ("shfl", None | Some("|p")) => shuffles(opcode, &mut m)?,
        ("vote", None) => vec![vote(opcode, &mut m)?],
        ("match", None) => vec![matches(opcode, &mut m)?],
        ("redux", None) => vec![reduction(opcode, &mut m)?],
        _ => return None,
    };
    Some(build(form, &collectives))
}

fn build(form: &str, collectives: &[Collective]) -> Probe {
    let mut random = Random::from_text(form);
    let entry = entry_name(form);
    let mut asm = Asm::default();
    let frame = asm.frame();
    let source = asm.element(&frame.input, &frame.index, 24);
    let words =
        [asm.load(Type::U32, &source, 0), asm.load(Type::U32, &source, 8), asm.load(Type::Pred, &source, 16)];
    let lanes: Vec<Lanes> = (0..WARPS)
        .map(|warp| {
            // Few distinct values in some warps, so that lanes match and agree.
            let all_alike = random.integer(32) as u32;
            std::array::from_fn(|_| match warp % 4 {
                0 => [random.below(3) as u32, random.integer(32) as u32, random.below(2) as u32],
                1 => [all_alike, random.below(40) as u32, (warp / 4 % 2) as u32],
                _ => [random.integer(32) as u32, random.below(64) as u32, u32::from(random.below(8) == 0)],
            })
        })
        .collect();
    // Each instruction under each mask for which every lane's results are defined.
    let mut runs = Vec::new();
    for collective in collectives {
        for mask in MASKS {
            let all = || lanes.iter().flat_map(|lanes| (0..32).map(move |lane| (lanes, lane)));
            let taking_part = all().filter(|(_, lane)| mask >> lane & 1 == 1);
            let results: Option<Vec<_>> =
                taking_part.map(|(lanes, lane)| (collective.model)(lanes, mask, lane)).collect();
            runs.extend(results.map(|results| (collective, mask, results)));
        }
    }
    let slots: usize = runs.iter().map(|(_, _, results)| results[0].len()).sum();
    let output = asm.element(&frame.output, &frame.index, 8 * slots);
    let (mut at, mut expected) = (0, vec![POISON; WARPS * 32 * 8 * slots]);
    let lane = asm.r32();
    asm.put(format!("and.b32 {lane}, {}, 31", frame.thread));
    let mut values = 0;
    for (collective, mask, results) in &runs {
        let (bit, p, skip) = (asm.r32(), asm.pred(), asm.label());
        asm.put(format!("shr.u32 {bit}, {}, {lane}", *mask as i32));
        asm.put(format!("and.b32 {bit}, {bit}, 1"));
        asm.put(format!("setp.eq.s32 {p}, {bit}, 0"));
        asm.put(format!("@{p} bra {skip}"));
        let registers = (collective.write)(&mut asm, &words, &(*mask as i32).to_string());
        for (i, (ty, register)) in registers.iter().enumerate() {
            asm.store(*ty, &output, 8 * (at + i), register);
        }
        asm.put(format!("{skip}:"));
        asm.put("bar.warp.sync -1");
        let members = (0..WARPS * 32).filter(|thread| mask >> (thread % 32) & 1 == 1);
        for (thread, results) in members.zip(results) {
            for (i, (ty, value)) in results.iter().enumerate() {
                let place = 8 * (thread * slots + at + i);
                expected[place..place + 8].copy_from_slice(&slot(*ty, *value));
                values += 1;
            }
        }
        at += registers.len();
    }
    let ptx = asm.entry(&entry, &[]);
    let input = lanes.iter().flatten().flatten().flat_map(|&x| u64::from(x).to_le_bytes()).collect();
    let launch = Launch::new(WARPS as u32 / 2, 64, input, expected, values);
    Probe { form: form.into(), entry, ptx, launches: vec![launch] }
}

/// `shfl.sync` with distances in a register and constant, over the whole warp and over segments of it.
fn shuffles(opcode: &str, m: &mut Modifiers<'_>) -> Option<Vec<Collective>> {
    m.take("sync").then_some(())?;
    let mode = m.take_one(&["up", "down", "bfly", "idx"])?.to_owned();
    if m.take_type()? != Type::B32 || !m.done() {
        return None;
    }
    let up = mode == "up";
    // The clamp: bits 0 to 4 the last lane (the first for `up`), bits 8 to 12 the segments.
    let clamps = if up { [0x0000, 0x1800] } else { [0x001f, 0x181f] };
    let mut out = Vec::new();
    for clamp in clamps {
        for distance in [None, Some(1), Some(2), Some(4), Some(8), Some(16), Some(31)] {
            let (opcode, mode) = (opcode.to_owned(), mode.clone());
            let write = move |asm: &mut Asm, words: &[String; 3], mask: &str| {
                let (d, p) = (asm.r32(), asm.pred());
                let b = distance.map_or(words[1].clone(), |n: u32| n.to_string());
                asm.put(format!("{opcode} {d}|{p}, {}, {b}, {clamp}, {mask}", words[0]));
                // Again without the predicate.
                let alone = asm.r32();
                asm.put(format!("{opcode} {alone}, {}, {b}, {clamp}, {mask}", words[0]));
                vec![(Type::U32, d), (Type::Pred, p), (Type::U32, alone)]
            };
            let model = move |lanes: &Lanes, mask: u32, lane: usize| {
                let b = distance.unwrap_or(lanes[lane][1]) & 31;
                let (source, valid) = shuffle(&mode, lane as u32, b, clamp);
                // What a lane outside the mask would give is undefined.
                let value = (mask >> source & 1 == 1).then(|| u64::from(lanes[source as usize][0]))?;
                Some(vec![(Type::U32, value), (Type::Pred, valid.into()), (Type::U32, value)])
            };
            out.push(Collective { write: Box::new(write), model: Box::new(model) });
        }
    }
    Some(out)
}

/// The lane that a shuffle reads, and whether it lay in range.
fn shuffle(mode: &str, lane: u32, b: u32, clamp: u32) -> (u32, bool) {
    let (segment, bound) = (clamp >> 8 & 31, clamp & 31);
    let last = lane & segment | bound & !segment & 31;
    let first = lane & segment;
    let (source, valid) = match mode {
        "up" => (lane as i32 - b as i32, lane as i32 - b as i32 >= last as i32),
        "down" => ((lane + b) as i32, lane + b <= last),
        "bfly" => ((lane ^ b) as i32, lane ^ b <= last),
        _ => {
            let source = first | b & !segment & 31;
            (source as i32, source <= last)
        }
    };
    if valid { (source as u32, true) } else { (lane, false) }
}

fn members(lanes: &Lanes, mask: u32) -> impl Iterator<Item = (usize, [u32; 3])> + '_ {
    (0..32).filter(move |lane| mask >> lane & 1 == 1).map(|lane| (lane, lanes[lane]))
}

fn vote(opcode: &str, m: &mut Modifiers<'_>) -> Option<Collective> {
    m.take("sync").then_some(())?;
    let mode = m.take_one(&["all", "any", "uni", "ballot"])?.to_owned();
    let ty = m.take_type()?;
    if !m.done() || ty != if mode == "ballot" { Type::B32 } else { Type::Pred } {
        return None;
    }
    let opcode = opcode.to_owned();
    let write = move |asm: &mut Asm, words: &[String; 3], mask: &str| {
        let d = asm.register_for(ty);
        asm.put(format!("{opcode} {d}, {}, {mask}", words[2]));
        vec![(ty, d)]
    };
    let model = move |lanes: &Lanes, mask: u32, _: usize| {
        let ballot = members(lanes, mask).fold(0, |out, (lane, x)| out | x[2] << lane);
        let result = match mode.as_str() {
            "all" => u32::from(ballot == mask),
            "any" => u32::from(ballot != 0),
            "uni" => u32::from(ballot == 0 || ballot == mask),
            _ => ballot,
        };
        Some(vec![(ty, result.into())])
    };
    Some(Collective { write: Box::new(write), model: Box::new(model) })
}

fn matches(opcode: &str, m: &mut Modifiers<'_>) -> Option<Collective> {
    let all = m.take_one(&["any", "all"])? == "all";
    m.take("sync").then_some(())?;
    if m.take_type()? != Type::B32 || !m.done() {
        return None;
    }
    let opcode = opcode.to_owned();
    let write = move |asm: &mut Asm, words: &[String; 3], mask: &str| {
        let (d, p) = (asm.r32(), asm.pred());
        if all {
            asm.put(format!("{opcode} {d}|{p}, {}, {mask}", words[0]));
            vec![(Type::U32, d), (Type::Pred, p)]
        } else {
            asm.put(format!("{opcode} {d}, {}, {mask}", words[0]));
            vec![(Type::U32, d)]
        }
    };
    let model = move |lanes: &Lanes, mask: u32, lane: usize| {
        let same = members(lanes, mask)
            .filter(|(_, x)| x[0] == lanes[lane][0])
            .fold(0, |out, (lane, _)| out | 1u32 << lane);
        Some(match all {
            true if same == mask => vec![(Type::U32, mask.into()), (Type::Pred, 1)],
            true => vec![(Type::U32, 0), (Type::Pred, 0)],
            false => vec![(Type::U32, same.into())],
        })
    };
    Some(Collective { write: Box::new(write), model: Box::new(model) })
}

fn reduction(opcode: &str, m: &mut Modifiers<'_>) -> Option<Collective> {
    m.take("sync").then_some(())?;
    let operation = m.take_one(&["add", "min", "max", "and", "or", "xor"])?.to_owned();
    let ty = m.take_type()?;
    let kinds: &[Type] = match operation.as_str() {
        "and" | "or" | "xor" => &[Type::B32],
        _ => &[Type::U32, Type::S32],
    };
    if !m.done() || !kinds.contains(&ty) {
        return None;
    }
    let opcode = opcode.to_owned();
    let write = move |asm: &mut Asm, words: &[String; 3], mask: &str| {
        let d = asm.r32();
        asm.put(format!("{opcode} {d}, {}, {mask}", words[0]));
        vec![(Type::U32, d)]
    };
    let model = move |lanes: &Lanes, mask: u32, _: usize| {
        let combine = |a: u32, b: u32| match (operation.as_str(), ty) {
            ("add", _) => a.wrapping_add(b),
            ("min", Type::S32) => (a as i32).min(b as i32) as u32,
            ("max", Type::S32) => (a as i32).max(b as i32) as u32,
            ("min", _) => a.min(b),
            ("max", _) => a.max(b),
            ("and", _) => a & b,
            ("or", _) => a | b,
            _ => a ^ b,
        };
        let total = members(lanes, mask).map(|(_, x)| x[0]).reduce(combine).unwrap_or_default();
        Some(vec![(Type::U32, total.into())])
    };
    Some(Collective { write: Box::new(write), model: Box::new(model) })
}

#[cfg(test)]
mod tests {
    use super::shuffle;

    #[test]
    fn shuffles_by_hand() {
        assert_eq!(shuffle("bfly", 5, 16, 0x1f), (21, true));
        assert_eq!(shuffle("down", 30, 2, 0x1f), (30, false));
        assert_eq!(shuffle("down", 6, 1, 0x181f), (7, true));
        // Segments of 8 lanes: lane 7 is the last of its own.
        assert_eq!(shuffle("down", 7, 1, 0x181f), (7, false));
        assert_eq!(shuffle("up", 0, 1, 0), (0, false));
        assert_eq!(shuffle("up", 9, 1, 0x1800), (8, true));
        assert_eq!(shuffle("up", 8, 1, 0x1800), (8, false));
        assert_eq!(shuffle("idx", 20, 3, 0x1f), (3, true));
        assert_eq!(shuffle("idx", 20, 3, 0x181f), (19, true));
    }
}
