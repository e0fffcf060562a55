//! Testing a plugin with the test kit: canned HTTP, secrets, cancelling, and both transports.
//!
//! `cargo run -p conjure-skill-sdk --features testkit --example tested_skill` does what a crate's own
//! tests would; the functions below `main` are the bodies of `#[test]` functions.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::time::Duration;

use conjure_skill_sdk::protocol::{Execute, HttpRequest, HttpResponse, Permissions};
use conjure_skill_sdk::testkit::{TestHost, Transport};
use conjure_skill_sdk::{Cx, Error, Result, Skill, export_skill};
use serde_json::json;

const FORECAST: &str = "https://weather.example/oslo";

fn skill() -> Skill {
    Skill::new("weather", "Knows the weather")
        .requires("http.send/1")
        .requires("secret.get/1")
        .permissions(Permissions {
            http: vec!["weather.example".to_owned()],
            secrets: vec!["WEATHER_TOKEN".to_owned()],
            ..Permissions::default()
        })
        .execute("forecast CITY | watch", |cx, call: Execute| {
            match call.command.split_once(' ') {
                Some(("forecast", city)) => forecast(cx, city),
                _ if call.command == "watch" => watch(cx),
                _ => Err(Error::invalid("say: forecast CITY | watch")),
            }
        })
}

fn forecast(cx: &Cx, city: &str) -> Result<String> {
    let token = cx.secret("WEATHER_TOKEN")?;
    let response = cx.http(&HttpRequest {
        method: "GET".to_owned(),
        url: format!("https://weather.example/{city}"),
        headers: vec![("authorization".to_owned(), format!("Bearer {token}"))],
        body: None,
        body_file: None,
    })?;
    match (response.status, response.body) {
        (200, Some(body)) => Ok(body),
        (status, _) => Err(Error::new(format!(
            "the service answered {status}: try another city"
        ))),
    }
}

/// Runs until it is cancelled, as something that waits should.
fn watch(cx: &Cx) -> Result<String> {
    cx.stdout(b"watching\n")?;
    loop {
        cx.check()?;
        std::thread::sleep(Duration::from_millis(5));
    }
}

export_skill!(skill, name = "weather");

fn main() -> Result<()> {
    for transport in Transport::BOTH {
        let host = TestHost::builder()
            .transport(transport)
            .secret("WEATHER_TOKEN", "a-token-of-nobody")
            .http("GET", FORECAST, answer(200, "rain until noon"))
            .http("GET", "https://weather.example/atlantis", answer(404, ""))
            .build()?;
        the_forecast_is_what_the_service_says(&host)?;
        an_unknown_city_says_how_to_go_on(&host)?;
        a_watch_ends_when_it_is_cancelled(&host)?;
        println!("{transport:?}: three tests passed");
    }
    Ok(())
}

fn answer(status: u16, body: &str) -> HttpResponse {
    HttpResponse {
        status,
        body: Some(body.to_owned()),
        ..HttpResponse::default()
    }
}

fn the_forecast_is_what_the_service_says(host: &TestHost) -> Result<()> {
    let plugin = host.link(skill)?;
    let outcome = plugin.call("skill.execute", json!({ "command": "forecast oslo" }));
    assert_eq!(outcome.text(), "rain until noon");
    Ok(())
}

fn an_unknown_city_says_how_to_go_on(host: &TestHost) -> Result<()> {
    let plugin = host.link(skill)?;
    let outcome = plugin.call("skill.execute", json!({ "command": "forecast atlantis" }));
    assert!(outcome.result()?.is_error);
    assert_eq!(outcome.text(), "the service answered 404: try another city");
    Ok(())
}

fn a_watch_ends_when_it_is_cancelled(host: &TestHost) -> Result<()> {
    let plugin = host.link(skill)?;
    let running = plugin.background("skill.execute", json!({ "command": "watch" }));
    assert!(running.until(|outcome| outcome.stdout == b"watching\n"));
    running.cancel();
    // An error of the author's code is a result that the model reads.
    assert!(running.wait().result()?.is_error);
    Ok(())
}
