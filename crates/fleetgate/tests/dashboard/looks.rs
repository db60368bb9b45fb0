//! Every page on a laptop and a phone, in light and dark: nothing overflows, nothing is cut off, nothing is complained about.
//!
//! Pictures of all go to `target/tmp/dashboard`.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::browser::{Browser, LAPTOP, PHONE, programs};
use crate::fleet::{BASE, Fleet, MORE, cluster, name};

/// What sticks out of the page, and what has less room than its text. Nothing hides what overflows but words for screen readers, and
/// fields in which text is typed.
const MISTAKES: &str = r"
    const mistakes = [];
    if (document.documentElement.scrollWidth > innerWidth) mistakes.push(`page: ${document.documentElement.scrollWidth} > ${innerWidth}`);
    for (const element of document.querySelectorAll('body *')) {
        if (element.closest('svg, .unseen, input, select') || !element.innerText?.trim()) continue;
        const box = element.getBoundingClientRect();
        const what = `${element.tagName}.${element.className} ${element.innerText.slice(0, 40)}`;
        const style = getComputedStyle(element);
        if (style.position === 'absolute') continue;
        if (style.display !== 'inline' && element.scrollWidth > element.clientWidth + 1) mistakes.push('cut off: ' + what);
        if (style.overflowY !== 'visible' && element.scrollHeight > element.clientHeight + 1) mistakes.push('too low: ' + what);
        if (box.width > 0 && (box.left < -1 || box.right > innerWidth + 1)) mistakes.push('sticks out: ' + what);
    }
    return mistakes";

/// Text against what is behind it, by WCAG 2.2 1.4.3.
const FAINT: &str = r"
    const parts = (color) => color.match(/[\d.]+/g).map(Number);
    const light = (color) => parts(color).slice(0, 3).map((c) => c / 255).map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
        .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
    const behind = (element) => {
        for (let at = element; at; at = at.parentElement) {
            const color = getComputedStyle(at).backgroundColor;
            if ((parts(color)[3] ?? 1) === 1) return color;
        }
        return 'rgb(255, 255, 255)';
    };
    const faint = new Set();
    for (const element of document.querySelectorAll('body *')) {
        if (element.closest('svg, .unseen') || ![...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim())) continue;
        const [one, other] = [light(getComputedStyle(element).color), light(behind(element))];
        const contrast = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
        if (contrast < 4.5) faint.add(`${contrast.toFixed(1)} ${element.tagName}.${element.className} ${element.textContent.slice(0, 30)}`);
    }
    return [...faint]";

#[tokio::test(flavor = "multi_thread")]
async fn pages_fit_on_every_screen() {
    let Some(programs) = programs() else { return };
    let clusters: Vec<String> =
        (0..24).map(|number| cluster(number, 3, if number % 7 == 3 { 1 + number % 3 } else { 0 })).collect();
    let broken = "apiVersion: fleetgate.dev/v1alpha1\nkind: Cluster\nmetadata: {name: Not_A_Name}\nspec: {}\n";
    let files =
        [("base.yaml", BASE), ("c.yaml", &clusters.join("---\n")), ("more.yaml", MORE), ("broken.yaml", broken)];
    let fleet = Fleet::start(&files);
    let browser = Browser::start(&programs, fleet.url()).await;
    let pictures = pictures();
    let one = format!("/clusters/{}", name(3));
    let long = format!(
        "/explain?what=http://www.acme.example:{}/a/rather/long/path?with=a-query&from=203.0.113.7",
        fleet.http.port()
    );
    let pages = [
        ("fleet", "/"),
        ("clusters", "/clusters"),
        ("clusters-none", "/clusters?q=nothing-is-called-so"),
        ("cluster", &one),
        ("cluster-refused", "/clusters/orphan"),
        ("zones", "/zones"),
        ("zone", "/zones/main"),
        ("records", "/records?q=eu-"),
        ("tenants", "/tenants"),
        ("tenant", "/tenants/acme"),
        ("ingresses", "/ingresses"),
        ("ingress", "/ingresses/acme/shop"),
        ("refusals", "/refusals"),
        ("explain", "/explain"),
        ("explained", &long),
        ("login", "/login"),
    ];
    let screens = [("laptop", LAPTOP), ("laptop-dark", LAPTOP.dark()), ("phone", PHONE), ("phone-dark", PHONE.dark())];
    for (page, path) in pages {
        browser.open(path).await;
        for (on, screen) in screens {
            browser.show_on(screen).await;
            assert_eq!(browser.run("return innerWidth").await, screen.width);
            assert_eq!(browser.run(MISTAKES).await, Value::Array(Vec::new()), "{page} on {on}");
            assert_eq!(browser.run(FAINT).await, Value::Array(Vec::new()), "{page} on {on}");
            fs::write(pictures.join(format!("{page}-{on}.png")), browser.screenshot().await).unwrap();
        }
        assert_eq!(browser.complaints().await, Vec::<String>::new(), "{page}");
        // What tenants write is text.
        assert_eq!(
            browser.run("return document.querySelectorAll('script, main img, main b').length").await,
            1,
            "{page}"
        );
        // Whoever cannot see: a name for each control, a heading for each page, a scope for each heading of a table.
        let nameless = "return [...document.querySelectorAll('a, button, input:not([type=hidden]), select')].filter((control) => \
            !(control.textContent?.trim() || control.getAttribute('aria-label') || control.labels?.length)).map((control) => control.outerHTML)";
        assert_eq!(browser.run(nameless).await, Value::Array(Vec::new()), "{page}");
        assert_eq!(browser.run("return document.querySelectorAll('h1').length").await, 1, "{page}");
        assert_eq!(browser.run("return document.querySelectorAll('th:not([scope])').length").await, 0, "{page}");
    }
    browser.close().await;
    fleet.end();
}

fn pictures() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("dashboard");
    fs::create_dir_all(&folder).unwrap();
    folder
}
