//! What replies cost: tokens, cache and money over time, by thread, model, tool and cause; as pictures,
//! tables and CSV.

use axum::Router;
use axum::extract::{Query, State};
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use conjure_core::foreign_text::clean;
use conjure_core::numerals::thousands;
use maud::{Markup, html};
use serde::Deserialize;

use crate::PageState;
use crate::failure::PageFailure;
use crate::layout::{Nav, PageFrame, layout};
use crate::request::PageRequest;
use crate::timestamps::day;
use crate::usage_picture::{Column, bar, columns};

/// The spans that are proposed.
const SPANS: [u32; 4] = [7, 30, 90, 365];
/// What tokens are for, in the order in which they are drawn.
const BUCKETS: [(&str, &str); 4] = [
    ("input", "Input"),
    ("cache-read", "Cache read"),
    ("cache-write", "Cache write"),
    ("output", "Output"),
];

pub(crate) fn router() -> Router<PageState> {
    Router::new()
        .route("/usage", get(show))
        .route("/usage.csv", get(csv))
}

#[derive(Deserialize)]
struct UsageRange {
    #[serde(default = "usual")]
    days: u32,
}

fn usual() -> u32 {
    30
}

#[derive(Deserialize)]
struct UsageInfo {
    days: Vec<DayUsageInfo>,
    threads: Vec<ThreadUsageInfo>,
    models: Vec<ModelUsageInfo>,
    tools: Vec<ToolUsageInfo>,
    causes: Vec<CauseCostInfo>,
    total: SpentInfo,
}

#[derive(Deserialize)]
struct SpentInfo {
    replies: u64,
    input: u64,
    cache_read: u64,
    cache_write: u64,
    output: u64,
    total: u64,
    usd: f64,
    unpriced_tokens: u64,
}

#[derive(Deserialize)]
struct DayUsageInfo {
    day_ms: i64,
    #[serde(flatten)]
    spent: SpentInfo,
}

#[derive(Deserialize)]
struct ThreadUsageInfo {
    thread: String,
    label: String,
    #[serde(flatten)]
    spent: SpentInfo,
}

#[derive(Deserialize)]
struct ModelUsageInfo {
    provider: String,
    model: String,
    #[serde(flatten)]
    spent: SpentInfo,
}

#[derive(Deserialize)]
struct ToolUsageInfo {
    name: String,
    calls: u64,
    failed: u64,
    duration_ms: u64,
    result_tokens: u64,
}

#[derive(Deserialize)]
struct CauseCostInfo {
    cause: String,
    times: u64,
    tokens: u64,
    usd: f64,
}

async fn read(app: &PageState, days: u32) -> Result<UsageInfo, PageFailure> {
    Ok(app.api.get(&format!("/api/v1/usage?days={days}")).await?)
}

async fn show(
    State(app): State<PageState>,
    Query(asked): Query<UsageRange>,
    request: PageRequest,
) -> Result<Response, PageFailure> {
    let days = asked.days;
    let usage = read(&app, days).await?;
    let body = html! {
        header."row spread" {
            h1 { "Usage" }
            a.button #usage-csv href={ "/usage.csv?days=" (days) } download { "CSV" }
        }
        nav.row aria-label="Days" {
            @for span in SPANS {
                a.button.small id={ "usage-" (span) } href={ "/usage?days=" (span) }
                    aria-current=[(span == days).then_some("true")] { (span) " days" }
            }
        }
        p #usage-total {
            strong { (thousands(usage.total.total)) } " tokens in " (thousands(usage.total.replies)) " replies, "
            strong { (usd(usage.total.usd)) }
            @if usage.total.unpriced_tokens > 0 { " and " (thousands(usage.total.unpriced_tokens)) " tokens whose price is not known" }
            ". Of the input " (cache_share(&usage.total)) " came out of a cache."
        }
        @if usage.days.is_empty() {
            p.empty { "Nothing was used in these days." }
        } @else {
            (over_time(&usage))
            (by_thread(&usage.threads))
            (by_model(&usage.models))
            (by_tool(&usage.tools))
            (by_cause(&usage.causes))
        }
    };
    Ok(layout(
        &request,
        &PageFrame::new(Nav::Usage, "Usage"),
        &body,
    ))
}

fn over_time(usage: &UsageInfo) -> Markup {
    let parts = |spent: &SpentInfo| {
        [
            spent.input,
            spent.cache_read,
            spent.cache_write,
            spent.output,
        ]
    };
    let tokens: Vec<Column> = each_day(&usage.days, |day, spent| Column {
        label: format!("{day}: {} tokens", spent.map_or(0, |spent| spent.total)),
        parts: spent.map_or_else(Vec::new, |spent| {
            parts(spent).map(|part| part as f64).to_vec()
        }),
    });
    let money: Vec<Column> = each_day(&usage.days, |day, spent| Column {
        label: format!("{day}: {}", usd(spent.map_or(0.0, |spent| spent.usd))),
        parts: vec![spent.map_or(0.0, |spent| spent.usd)],
    });
    let classes = BUCKETS.map(|(class, _)| class);
    html! {
        section {
            h2 #usage-tokens { "Tokens a day" }
            ul.legend { @for (class, words) in BUCKETS { li { span class={ "swatch " (class) } aria-hidden="true" {} (words) } } }
            (columns("Tokens a day; the table below has the numbers", &tokens, &classes))
        }
        @if usage.total.usd > 0.0 {
            section {
                h2 #usage-money { "Money a day" }
                (columns("US dollars a day; the table below has the numbers", &money, &["output"]))
            }
        }
        details #usage-days {
            summary #usage-days-show { "The days as a table" }
            (table("Days", &["Day", "Replies", "Input", "Cache read", "Cache write", "Output", "Money"], &html! {
                @for one in &usage.days {
                    tr {
                        th scope="row" { (day(one.day_ms)) }
                        td.number { (thousands(one.spent.replies)) }
                        @for part in parts(&one.spent) { td.number { (thousands(part)) } }
                        td.number { (usd(one.spent.usd)) }
                    }
                }
            }))
        }
    }
}

/// A column for each day from the first to the last, those without use among them.
fn each_day(
    days: &[DayUsageInfo],
    column: impl Fn(&str, Option<&SpentInfo>) -> Column,
) -> Vec<Column> {
    const DAY_MS: i64 = 86_400_000;
    let (Some(first), Some(last)) = (days.first(), days.last()) else {
        return Vec::new();
    };
    let count = (last.day_ms - first.day_ms) / DAY_MS;
    let all = (0..=count).map(|at| first.day_ms + at * DAY_MS);
    all.map(|at| {
        let spent = days
            .iter()
            .find(|day| day.day_ms == at)
            .map(|day| &day.spent);
        column(&day(at), spent)
    })
    .collect()
}

/// A table whose first column has words and whose others have numbers.
fn table(label: &str, heads: &[&str], rows: &Markup) -> Markup {
    html! {
        section.scroll tabindex="0" aria-label=(label) {
            table.table {
                thead { tr {
                    @for (at, head) in heads.iter().enumerate() { th.number[at > 0] scope="col" { (head) } }
                } }
                tbody { (rows) }
            }
        }
    }
}

fn by_thread(threads: &[ThreadUsageInfo]) -> Markup {
    let most = threads.first().map_or(0, |one| one.spent.total) as f64;
    html! {
        section {
            h2 #usage-threads { "By chat" }
            (table("By chat", &["Chat", "Replies", "Tokens", "Money"], &html! {
                @for one in threads.iter().take(50) {
                    tr {
                        th scope="row" {
                            (clean(if one.label.is_empty() { &one.thread } else { &one.label }))
                            (bar(one.spent.total as f64, most))
                        }
                        (numbers(&one.spent))
                    }
                }
            }))
        }
    }
}

fn numbers(spent: &SpentInfo) -> Markup {
    html! {
        td.number { (thousands(spent.replies)) }
        td.number { (thousands(spent.total)) }
        td.number { @if spent.unpriced_tokens == spent.total && spent.total > 0 { "not known" } @else { (usd(spent.usd)) } }
    }
}

fn by_model(models: &[ModelUsageInfo]) -> Markup {
    let most = models.first().map_or(0, |one| one.spent.total) as f64;
    html! {
        section {
            h2 #usage-models { "By model" }
            (table("By model", &["Model", "Replies", "Tokens", "Money"], &html! {
                @for one in models {
                    tr {
                        th scope="row" { (clean(&one.model)) " " span.muted { (clean(&one.provider)) } (bar(one.spent.total as f64, most)) }
                        (numbers(&one.spent))
                    }
                }
            }))
        }
    }
}

fn by_tool(tools: &[ToolUsageInfo]) -> Markup {
    let most = tools.first().map_or(0, |one| one.result_tokens) as f64;
    html! {
        @if !tools.is_empty() {
            section {
                h2 #usage-tools { "By tool" }
                (table("By tool", &["Tool", "Calls", "Failed", "Average", "Tokens of results"], &html! {
                    @for one in tools {
                        tr {
                            th scope="row" { code { (clean(&one.name)) } (bar(one.result_tokens as f64, most)) }
                            td.number { (thousands(one.calls)) }
                            td.number { (thousands(one.failed)) }
                            td.number { (thousands(one.duration_ms.checked_div(one.calls).unwrap_or(0))) " ms" }
                            td.number { (thousands(one.result_tokens)) }
                        }
                    }
                }))
            }
        }
    }
}

fn by_cause(causes: &[CauseCostInfo]) -> Markup {
    let most = causes.first().map_or(0, |one| one.tokens) as f64;
    html! {
        @if !causes.is_empty() {
            section {
                h2 #usage-causes { "By cause" }
                p.muted { "Parts of the whole that have a cause; they may overlap." }
                (table("By cause", &["Cause", "Times", "Tokens", "Money"], &html! {
                    @for one in causes {
                        tr {
                            th scope="row" { (cause(&one.cause)) (bar(one.tokens as f64, most)) }
                            td.number { (thousands(one.times)) }
                            td.number { (thousands(one.tokens)) }
                            td.number { (usd(one.usd)) }
                        }
                    }
                }))
            }
        }
    }
}

fn cause(name: &str) -> &str {
    match name {
        "cache_miss" => "Missed by the cache",
        "retry" => "Begun again",
        "schemas" => "Definitions of tools",
        "summary" => "Summaries",
        "sampling" => "Asked by plugins",
        "delegated" => "Delegated work",
        other => other,
    }
}

fn cache_share(spent: &SpentInfo) -> String {
    let input = spent.input + spent.cache_read + spent.cache_write;
    format!(
        "{} %",
        (spent.cache_read * 100).checked_div(input).unwrap_or(0)
    )
}

fn usd(usd: f64) -> String {
    if usd > 0.0 && usd < 0.01 {
        format!("${usd:.4}")
    } else {
        format!("${usd:.2}")
    }
}

async fn csv(
    State(app): State<PageState>,
    Query(asked): Query<UsageRange>,
) -> Result<Response, PageFailure> {
    let usage = read(&app, asked.days).await?;
    let mut lines = vec!["kind,name,replies,input,cache_read,cache_write,output,tokens,usd,unpriced_tokens,times,failed,duration_ms".to_owned()];
    let mut line = |kind: &str, name: &str, spent: &SpentInfo| {
        lines.push(format!(
            "{kind},{},{},{},{},{},{},{},{},{},,,",
            cell(name),
            spent.replies,
            spent.input,
            spent.cache_read,
            spent.cache_write,
            spent.output,
            spent.total,
            spent.usd,
            spent.unpriced_tokens
        ));
    };
    for one in &usage.days {
        line("day", &day(one.day_ms), &one.spent);
    }
    for one in &usage.threads {
        let name = if one.label.is_empty() {
            &one.thread
        } else {
            &one.label
        };
        line("thread", name, &one.spent);
    }
    for one in &usage.models {
        line(
            "model",
            &format!("{}/{}", one.provider, one.model),
            &one.spent,
        );
    }
    line("total", "", &usage.total);
    for one in &usage.tools {
        let (calls, failed, time) = (one.calls, one.failed, one.duration_ms);
        lines.push(format!(
            "tool,{},,,,,,{},,,{calls},{failed},{time}",
            cell(&one.name),
            one.result_tokens
        ));
    }
    for one in &usage.causes {
        lines.push(format!(
            "cause,{},,,,,,{},{},,{},,",
            cell(&one.cause),
            one.tokens,
            one.usd,
            one.times
        ));
    }
    let headers = [
        (header::CONTENT_TYPE, "text/csv; charset=utf-8"),
        (
            header::CONTENT_DISPOSITION,
            "attachment; filename=\"usage.csv\"",
        ),
    ];
    Ok((headers, lines.join("\r\n") + "\r\n").into_response())
}

/// A cell of CSV (RFC 4180). What a spreadsheet would take for a formula stands behind an apostrophe.
fn cell(text: &str) -> String {
    let is_formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
    let text = if is_formula {
        format!("'{text}")
    } else {
        text.to_owned()
    };
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_one_cell_and_no_formula() {
        assert_eq!(cell("plain"), "plain");
        assert_eq!(cell("a,\"b\"\n"), "\"a,\"\"b\"\"\n\"");
        assert_eq!(cell("=HYPERLINK(\"x\")"), "\"'=HYPERLINK(\"\"x\"\")\"");
    }

    #[test]
    fn numbers_are_readable() {
        assert_eq!(
            (thousands(999), usd(0.0), usd(0.0042), usd(1.5)),
            (
                "999".to_owned(),
                "$0.00".to_owned(),
                "$0.0042".to_owned(),
                "$1.50".to_owned()
            )
        );
    }
}
