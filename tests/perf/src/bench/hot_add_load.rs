//! What 300 changed versions of a hot-added skill leave behind in a host that keeps running.

use anyhow::Result;
use conjure_host::plugin::CallOptions;
use conjure_skill_sdk::protocol::{Request, ToolResult};
use serde_json::json;

use super::on_runtime;
use crate::figure::Figure;
use crate::measured::{EXECUTE, PluginFixture, Versions, instance, own_memory, status};
use crate::samples::{Samples, ms, timed};
use crate::shipped::BenchArtifacts;

const LOADS: u64 = 300;

pub(super) fn run(shipped: &BenchArtifacts) -> Result<Vec<Figure>> {
    let library = shipped.skill()?.to_owned();
    on_runtime(async move {
        let place = PluginFixture::new()?;
        let versions = Versions::of(&library)?;
        let json = serde_json::to_vec(&Request::new(json!({ "command": "x" })))?;
        let mut times = Samples::default();
        let (mut own, mut mapped) = (0.0, 0.0);
        for number in 0..=LOADS {
            let path = place.put("libmeasured.so", &versions.number(number)?)?;
            let (plugin, loaded) = timed(|| place.registry.add(&path, false));
            let instance = instance(&plugin?).await?;
            let reply = instance
                .request(EXECUTE, json.clone(), CallOptions::default())
                .await?;
            let result: ToolResult = serde_json::from_slice(&reply)?;
            anyhow::ensure!(result.joined_text() == "x", "a call was lost: {result:?}");
            if number == 0 {
                (own, mapped) = (own_memory()?, status("self", "RssFile:")?);
            } else {
                times.push(ms(loaded));
            }
        }
        let a_load = |before: f64, after: f64| (after - before) / LOADS as f64;
        let method = "Growth of the process's own memory (RssAnon) over 300 versions put over \
                      each other in the plugin directory, each loaded and called once, divided by \
                      their number; about 50 KiB is what the system's loader costs.";
        let note = format!(
            "Pages of the libraries' files, which the system can take back, grew by {:.0} KiB a \
             load.",
            a_load(mapped, status("self", "RssFile:")?)
        );
        let time = "Registry::add of each of these versions, while all before stay open.";
        Ok(vec![
            Figure::single("hot_add_load", "KiB", a_load(own, own_memory()?), method).note(note),
            Figure::new("hot_add_load_time", "ms", &times, time),
        ])
    })
}
