//! Holds the files of the web page. They use no library. `tests/web/run` tests them in a browser.

pub(super) struct File {
    pub(super) path: &'static str,
    pub(super) content_type: &'static str,
    pub(super) text: &'static str,
}

pub(super) const FILES: &[File] = &[
    File {
        path: "/",
        content_type: "text/html; charset=utf-8",
        text: include_str!("page/index.html"),
    },
    File {
        path: "/page.css",
        content_type: "text/css; charset=utf-8",
        text: include_str!("page/page.css"),
    },
    script("/device.js", include_str!("page/device.js")),
    script("/dom.js", include_str!("page/dom.js")),
    script("/layout.js", include_str!("page/layout.js")),
    script("/list.js", include_str!("page/list.js")),
    script("/live.js", include_str!("page/live.js")),
    script("/map.js", include_str!("page/map.js")),
    script("/model.js", include_str!("page/model.js")),
    script("/page.js", include_str!("page/page.js")),
];

const fn script(path: &'static str, text: &'static str) -> File {
    File {
        path,
        content_type: "text/javascript; charset=utf-8",
        text,
    }
}
