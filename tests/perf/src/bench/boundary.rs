//! The boundary alone: into a library and back, with an operation that returns at once.

use std::hint::black_box;

use anyhow::{Context as _, Result};

use super::on_runtime;
use crate::figure::Figure;
use crate::measured::{NOTHING, Place, earn};
use crate::samples::nanoseconds;
use crate::shipped::Shipped;

pub(super) fn run(shipped: &Shipped) -> Result<Vec<Figure>> {
    let library = shipped.skill()?.to_owned();
    on_runtime(async move {
        let place = Place::new()?;
        let instance = place.instance(&library).await?;
        earn(&instance, NOTHING).await?;
        let mut lost = 0_u32;
        let samples = nanoseconds(3_000, 1_000, || {
            let reply = black_box(&instance).request_in_place(NOTHING, b"{}");
            lost += u32::from(black_box(reply).is_none_or(|reply| reply.is_err()));
        });
        (lost == 0)
            .then_some(())
            .with_context(|| format!("{lost} calls were not made in place"))?;
        let method = "Instance::request_in_place into a real library whose operation returns `{}` \
                      before any code of the SDK: the host's guards, its context object, the call \
                      through the ABI's object and the reply's bytes; medians of batches of 1,000.";
        Ok(vec![
            Figure::new("boundary", "ns", &samples, method).at_most(60.0),
        ])
    })
}
