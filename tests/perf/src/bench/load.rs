//! Loading a plugin: from a complete file to the first answer of an instance.

use std::path::Path;

use anyhow::Result;

use super::on_runtime;
use crate::figure::{Figure, short};
use crate::measured::{PluginFixture, Versions, instance, own_memory};
use crate::samples::{Samples, ms, timed};
use crate::shipped::BenchArtifacts;

/// Milliseconds that a load may take.
const TARGET: f64 = 5.0;

/// Loads that are measured, after some that are not.
const LOADS: u64 = 100;
const WARM_UP: u64 = 10;

const METHOD: &str = "Registry::add of a file whose bytes differ each time (owner and mode, \
                      reading, structure, SHA-256, header, the store's copy, opening, layouts, \
                      manifest, publishing), then create and ping.";

pub(super) fn run(shipped: &BenchArtifacts) -> Result<Vec<Figure>> {
    let (skill, local) = (shipped.skill()?.to_owned(), shipped.local()?.to_owned());
    on_runtime(async move {
        let skill = loads(&skill).await?;
        let local = loads(&local).await?;
        let memory = "Growth of the process's own memory (RssAnon) over these loads of the skill, \
                      divided by their number; every instance was dropped before the next load.";
        Ok(vec![
            Figure::new(
                "load",
                "ms",
                &skill.total,
                &format!("{METHOD} The measured skill."),
            )
            .at_most(TARGET)
            .note(skill.note()),
            Figure::new(
                "load_executor",
                "ms",
                &local.total,
                &format!("{METHOD} The local executor, with its runtime."),
            )
            .at_most(TARGET)
            .note(local.note()),
            Figure::single("load_memory", "KiB", skill.growth, memory),
        ])
    })
}

struct Loads {
    total: Samples,
    /// Times up to publishing, a part of the whole.
    add: Samples,
    bytes: usize,
    /// KiB of memory a load.
    growth: f64,
}

impl Loads {
    fn note(&self) -> String {
        format!(
            "The library has {} KiB; {} ms of it are Registry::add, the rest the instance.",
            self.bytes / 1024,
            short(self.add.median())
        )
    }
}

async fn loads(library: &Path) -> Result<Loads> {
    let place = PluginFixture::new()?;
    let versions = Versions::of(library)?;
    let (mut whole, mut add) = (Samples::default(), Samples::default());
    let mut before = 0.0;
    for number in 1..=WARM_UP + LOADS {
        if number == WARM_UP + 1 {
            before = own_memory()?;
        }
        let path = place.put("libplugin.so", &versions.number(number)?)?;
        let (plugin, loaded) = timed(|| place.registry.add(&path, false));
        let plugin = plugin?;
        let begun = std::time::Instant::now();
        let made = instance(&plugin).await?;
        let created = begun.elapsed();
        drop(made);
        if number > WARM_UP {
            add.push(ms(loaded));
            whole.push(ms(loaded + created));
        }
    }
    Ok(Loads {
        total: whole,
        add,
        bytes: versions.len(),
        growth: (own_memory()? - before) / LOADS as f64,
    })
}
