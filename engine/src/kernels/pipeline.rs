//! Between the stages of a model that is split over devices.
//!
//! The receiving buffer is `#[peer]`: it may lie on another device, which the launching one must have access to
//! ([`Device::peer_access`](crate::device::Device::peer_access)). What a stage stores there is seen by work that waits for an
//! event recorded after the launch.

use crate::kernel::{Case, Counter, kernel};

fn hop_reference(x: &[f32], y: &mut [f64], n: u32) {
    for (y, &x) in y.iter_mut().zip(x).take(n as usize) {
        *y = f64::from(x);
    }
}

fn hop_cases() -> Vec<Case> {
    let case = |n: u32| Case::new(format!("{n} elements")).u32("n", n);
    let special = [f32::NAN, -0.0, f32::INFINITY, f32::MIN_POSITIVE / 3.0, -f32::MAX, 1.0e-45, 7.0];
    vec![
        case(1),
        case(3),
        case(4),
        case(1023),
        case(1025),
        case(7168),
        case(7).values("x", &special),
        case(4 * 4096 * 64).representative(),
    ]
}

/// `y = x`, bit for bit: the residual streams of a token, from one stage to the next.
#[kernel(module = "pipeline", entry = "hop", reference = hop_reference, cases = hop_cases, tol = 0)]
#[launch(grid = (n.div_ceil(1024), 1, 1), block = (256, 1, 1), dependent)]
#[cost(read = x.bytes(), write = y.bytes(), flops = 0)]
pub fn hop(
    #[len(n)] x: &[f32],
    #[out]
    #[peer]
    #[len(n)]
    y: &mut [f32],
    n: u32,
);

fn take_reference(incoming: &[u32], tokens: &mut [u32], position: u32) {
    tokens[position as usize] = incoming[0];
}

fn take_cases() -> Vec<Case> {
    let case = |position: u32| {
        let tokens = [9u32, 8, 7, 6, 5];
        let case = Case::new(format!("position {position}")).counter("position", position);
        case.values("incoming", &[151_642u32]).values("tokens", &tokens)
    };
    vec![case(0), case(3), case(4)]
}

/// `tokens[*position] = incoming[0]`: the token that the last stage handed back ([`hop_token()`]), where the first one reads it.
#[kernel(module = "pipeline", entry = "take_token", reference = take_reference, cases = take_cases, tol = 0)]
#[launch(grid = (1, 1, 1), block = (32, 1, 1), dependent)]
#[cost(read = 8, write = 4, flops = 0)]
pub fn take_token(#[len(1)] incoming: &[u32], #[len(1)] tokens: &mut [u32], position: &Counter);

fn hop_token_reference(tokens: &[u32], position: u32, out: &mut [u32]) {
    out[0] = tokens[position as usize];
}

fn hop_token_cases() -> Vec<Case> {
    let case = |position: u32| {
        let tokens = [9u32, 8, 7, 151_642, 5];
        Case::new(format!("position {position}")).counter("position", position).values("tokens", &tokens)
    };
    vec![case(0), case(3), case(4)]
}

/// `out[0] = tokens[*position]`: the token that the last stage chose, to be taken by the first one ([`take_token()`]).
#[kernel(module = "pipeline", entry = "hop_token", reference = hop_token_reference, cases = hop_token_cases, tol = 0)]
#[launch(grid = (1, 1, 1), block = (32, 1, 1), dependent)]
#[cost(read = 8, write = 4, flops = 0)]
pub fn hop_token(
    #[len(1)] tokens: &[u32],
    position: &Counter,
    #[out]
    #[peer]
    #[len(1)]
    out: &mut [u32],
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Buffer, Device, DeviceList};
    use crate::engine::Engine;
    use crate::options::EngineOptions;
    use ptx_sim::system::{System, SystemConfig};

    fn engines() -> [Engine; 2] {
        let system = System::new(SystemConfig { devices: 2, ..SystemConfig::default() });
        let devices: [Device; 2] = DeviceList::Sim(2).open_in(&system).unwrap().try_into().unwrap();
        devices.map(|device| Engine::new(device, EngineOptions::default()).unwrap())
    }

    #[test]
    fn a_hop_stores_on_the_next_stage_s_device() {
        let [one, two] = engines();
        let data: Vec<f32> = (0..1030u32).map(|i| f32::from_bits(i.wrapping_mul(0x9e37_79b9))).collect();
        let bits = |values: &[f32]| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        let x = Buffer::from_slice(one.device(), &data, "x").unwrap();
        let y = Buffer::from_slice(two.device(), &vec![1.0f32; 1040], "y").unwrap();
        let run = |launch: &crate::kernel::Launch| {
            launch.submit(one.stream(), one.function(launch.decl).unwrap()).map_err(|error| error.to_string())
        };
        // Without access it is the device that refuses; and both ends on either alignment.
        let refused = run(&hop(&x, &y, 1030).unwrap()).unwrap_err();
        assert!(refused.contains("memory of device 1") && refused.contains("`y`"), "{refused}");
        assert!(one.device().peer_access(two.device()).unwrap());
        for (from, to, n) in [(0, 0, 1030), (1, 0, 1029), (0, 3, 1030), (2, 6, 17)] {
            two.stream().fill(&y, 0).unwrap();
            let (x, y) = (x.slice(from..).unwrap(), y.slice(to..).unwrap());
            run(&hop(&x, &y, n).unwrap()).unwrap();
            let got = y.to_vec().unwrap();
            let n = n as usize;
            assert_eq!(bits(&got[..n]), bits(&data[from..from + n]), "{from} to {to}");
            assert!(got[n..].iter().all(|&x| x == 0.0), "past the end");
        }
    }

    #[test]
    fn a_token_goes_back_to_the_first_stage() {
        let [one, two] = engines();
        assert!(two.device().peer_access(one.device()).unwrap());
        let chosen = Buffer::from_slice(two.device(), &[5u32, 6, 7, 8], "chosen").unwrap();
        let at_two = Buffer::from_slice(two.device(), &[2u32], "position at two").unwrap();
        let handed = Buffer::from_slice(one.device(), &[0u32], "handed over").unwrap();
        let tokens = Buffer::from_slice(one.device(), &[1u32, 2, 3, 4], "tokens").unwrap();
        let at_one = Buffer::from_slice(one.device(), &[1u32], "position at one").unwrap();
        let back = hop_token(&chosen, &at_two, &handed).unwrap();
        back.submit(two.stream(), two.function(back.decl).unwrap()).unwrap();
        let taken = take_token(&handed, &tokens, &at_one).unwrap();
        taken.submit(one.stream(), one.function(taken.decl).unwrap()).unwrap();
        assert_eq!(tokens.to_vec().unwrap(), [1, 7, 3, 4]);
    }

    #[test]
    fn buffers_of_another_device_are_for_peer_arguments_only() {
        let [one, two] = engines();
        let x = Buffer::<f32>::new(one.device(), 8, "x").unwrap();
        let y = Buffer::<u32>::new(two.device(), 8, "y").unwrap();
        let position = Counter::new(one.device(), 1, "position").unwrap();
        let error = hop_token(&y, &position, &y).unwrap_err().to_string();
        assert!(
            error.contains("`position`") && error.contains("sim:0") && error.contains("sim:1"),
            "{error}"
        );
        let launch = hop(&x, &y.cast().unwrap(), 8).unwrap();
        let error = launch.submit(two.stream(), two.function(launch.decl).unwrap()).unwrap_err().to_string();
        assert!(error.contains("hop") && error.contains("sim:0") && error.contains("sim:1"), "{error}");
    }
}
