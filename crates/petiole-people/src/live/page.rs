//! Holds the files of the web page. They use no library.

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
    File {
        path: "/page.js",
        content_type: "text/javascript; charset=utf-8",
        text: include_str!("page/page.js"),
    },
];
