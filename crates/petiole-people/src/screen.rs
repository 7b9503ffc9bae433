//! Draws tables on a terminal in full-screen mode, and reads its keys. It decides nothing.
use ratatui::{
    DefaultTerminal, Frame,
    crossterm::event::{self, KeyCode, KeyEvent, KeyModifiers},
    layout::{Constraint, Rect},
    style::{Color, Modifier, Style},
    widgets::{Block, Borders, Row, Table, TableState},
};
use std::{thread, time::Duration};
use tokio::sync::mpsc;

/// The interval at which the key reader checks whether its receiver still exists.
const KEY_WAIT: Duration = Duration::from_millis(200);

/// The terminal in full-screen mode. Dropping it restores the previous content.
pub struct Screen {
    terminal: DefaultTerminal,
}

impl Screen {
    pub fn open() -> anyhow::Result<Self> {
        Ok(Self {
            terminal: ratatui::try_init()?,
        })
    }

    pub fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> anyhow::Result<()> {
        self.terminal.draw(draw)?;
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Returns the keys that are pressed, as the commands that they mean. They are read by a thread, because reading a terminal
/// blocks. The thread ends with the receiver.
pub fn keys<K: Send + 'static>(meaning: fn(KeyCode) -> Option<K>) -> mpsc::Receiver<K> {
    let (sender, receiver) = mpsc::channel(16);
    thread::spawn(move || {
        while !sender.is_closed() {
            let event = match event::poll(KEY_WAIT) {
                Ok(true) => event::read().ok(),
                Ok(false) => None,
                Err(_) => return,
            };
            let key = event.and_then(|event| event.as_key_press_event());
            if let Some(key) = key.map(code).and_then(meaning)
                && sender.blocking_send(key).is_err()
            {
                return;
            }
        }
    });
    receiver
}

/// Returns the key without its modifiers. Ctrl-C, which a terminal in this mode sends as a key, is the escape key.
fn code(key: KeyEvent) -> KeyCode {
    let is_interrupt = key.modifiers.contains(KeyModifiers::CONTROL);
    match is_interrupt && key.code == KeyCode::Char('c') {
        true => KeyCode::Esc,
        false => key.code,
    }
}

/// The content of a table.
pub struct Content<'a, const N: usize> {
    pub title: &'a str,
    pub columns: &'a [&'static str; N],
    pub rows: &'a [[String; N]],
    /// The width of each column. The last one gets the remaining width.
    pub widths: [u16; N],
    pub color: fn(&[String; N]) -> Color,
    /// The row that is marked, and always visible.
    pub selected: Option<usize>,
}

pub fn draw_table<const N: usize>(frame: &mut Frame<'_>, area: Rect, content: &Content<'_, N>) {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let header = Row::new(*content.columns).style(bold);
    let rows = (content.rows.iter())
        .map(|cells| Row::new(cells.clone()).style(Style::new().fg((content.color)(cells))));
    let widths = content.widths.iter().enumerate();
    let widths = widths.map(|(n, width)| match n + 1 == N {
        true => Constraint::Fill(1),
        false => Constraint::Length(*width),
    });
    let table = Table::new(rows, widths)
        .header(header)
        .column_spacing(2)
        .block(titled(content.title))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut state = TableState::new().with_selected(content.selected);
    frame.render_stateful_widget(table, area, &mut state);
}

/// Returns a block with a line above it that has a title.
pub fn titled(title: &str) -> Block<'_> {
    Block::new()
        .borders(Borders::TOP)
        .title(format!(" {title} "))
}
