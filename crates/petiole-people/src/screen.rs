//! Draws tables on a terminal in full-screen mode, and reads its keys. It decides nothing.
use ratatui::{
    DefaultTerminal, Frame,
    crossterm::event::{self, KeyCode, KeyEvent, KeyModifiers},
    layout::{Constraint, Rect},
    style::{Color, Modifier, Style},
    widgets::{Block, Borders, Row, Table, TableState},
};
use std::{mem::ManuallyDrop, thread, time::Duration};
use tokio::sync::mpsc;

/// The interval at which the key reader checks whether its receiver still exists.
const KEY_WAIT: Duration = Duration::from_millis(200);

/// The terminal in full-screen mode. Dropping it restores the previous content.
pub struct Screen {
    /// Its own end would write an error to the terminal, and panic where that is closed.
    terminal: ManuallyDrop<DefaultTerminal>,
}

impl Screen {
    pub fn open() -> anyhow::Result<Self> {
        Ok(Self {
            terminal: ManuallyDrop::new(ratatui::try_init()?),
        })
    }

    pub fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> anyhow::Result<()> {
        self.terminal.draw(draw)?;
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.terminal.show_cursor().ok();
        ratatui::try_restore().ok();
    }
}

/// A command of the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    Quit,
    Up,
    Down,
    First,
    Last,
    Enter,
    Escape,
    Backspace,
    /// A letter of the search while it is typed, and a command otherwise.
    Letter(char),
}

/// Returns the command that a key means.
fn meaning(key: KeyCode) -> Option<Key> {
    let keys = [
        (INTERRUPT, Key::Quit),
        (KeyCode::Esc, Key::Escape),
        (KeyCode::Enter, Key::Enter),
        (KeyCode::Backspace, Key::Backspace),
        (KeyCode::Up, Key::Up),
        (KeyCode::Down, Key::Down),
        (KeyCode::Home, Key::First),
        (KeyCode::End, Key::Last),
    ];
    let known = keys.into_iter().find(|(known, _)| *known == key);
    if let (None, KeyCode::Char(letter)) = (&known, key) {
        return Some(Key::Letter(letter));
    }
    known.map(|(_, meaning)| meaning)
}

/// Returns the keys that are pressed, as the commands that they mean. They are read by a thread, because reading a terminal
/// blocks. The thread ends with the receiver.
pub fn keys() -> mpsc::Receiver<Key> {
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

/// Ctrl-C, which a terminal in this mode sends as a key.
const INTERRUPT: KeyCode = KeyCode::Char('\u{3}');

/// Returns the key without its modifiers, or [`INTERRUPT`].
fn code(key: KeyEvent) -> KeyCode {
    let is_interrupt = key.modifiers.contains(KeyModifiers::CONTROL);
    if is_interrupt && key.code == KeyCode::Char('c') {
        INTERRUPT
    } else {
        key.code
    }
}

/// The space between two columns.
const SPACING: u16 = 2;

/// The content of a table.
pub struct Content<'a, const N: usize> {
    pub title: &'a str,
    pub columns: &'a [&'static str; N],
    pub rows: &'a [[String; N]],
    /// The most characters that each column gets.
    pub widths: [u16; N],
    pub color: fn(&[String; N]) -> Color,
    /// The row that is marked, and always visible.
    pub selected: Option<usize>,
}

pub fn draw_table<const N: usize>(frame: &mut Frame<'_>, area: Rect, content: &Content<'_, N>) {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let widths = fit(content, area.width);
    let shown = |cells: [&str; N]| {
        let cells = cells.into_iter().zip(widths);
        Row::new(cells.map(|(cell, width)| shortened(cell, width.into())))
    };
    let header = shown(*content.columns).style(bold);
    let rows = content.rows.iter().map(|cells| {
        let row = shown(cells.each_ref().map(String::as_str));
        row.style(Style::new().fg((content.color)(cells)))
    });
    let table = Table::new(rows, widths.map(Constraint::Length))
        .header(header)
        .column_spacing(SPACING)
        .block(titled(content.title))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut state = TableState::new().with_selected(content.selected);
    frame.render_stateful_widget(table, area, &mut state);
}

/// Returns the widths of the columns: those of their longest cells, of which the widest give way until the table fits.
fn fit<const N: usize>(content: &Content<'_, N>, width: u16) -> [u16; N] {
    let mut widths = content.widths;
    for (n, width) in widths.iter_mut().enumerate() {
        let cells = content.rows.iter().map(|cells| cells[n].chars().count());
        let longest = cells.chain([content.columns[n].len()]).max();
        *width = u16::try_from(longest.unwrap_or_default())
            .unwrap_or(u16::MAX)
            .min(*width);
    }
    let gaps = SPACING.saturating_mul(u16::try_from(N.saturating_sub(1)).unwrap_or(u16::MAX));
    let room = u32::from(width.saturating_sub(gaps));
    while widths.iter().copied().map(u32::from).sum::<u32>() > room
        && let Some(widest) = widths.iter_mut().max().filter(|widest| **widest > 1)
    {
        *widest -= 1;
    }
    widths
}

/// Returns a cell whose middle is left out if it is longer than `width`: the ends of names tell them apart.
fn shortened(cell: &str, width: usize) -> String {
    let length = cell.chars().count();
    if length <= width {
        return cell.to_owned();
    }
    let end = width.saturating_sub(1) / 2;
    let begin = cell.chars().take(width.saturating_sub(1 + end));
    let rest = cell.chars().skip(length - end);
    begin.chain(['…']).chain(rest).collect()
}

/// Returns the beginning of a text that is longer than `width`, with an ellipsis.
pub(crate) fn cut(text: &str, width: u16) -> String {
    let width = usize::from(width);
    if text.chars().count() > width {
        let begin = text.chars().take(width.saturating_sub(1));
        begin.chain(['…']).collect()
    } else {
        text.to_owned()
    }
}

/// Returns a block with a line above it that has a title.
pub(crate) fn titled(title: &str) -> Block<'_> {
    Block::new()
        .borders(Borders::TOP)
        .title(format!(" {title} "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::{Terminal, backend::TestBackend};

    fn drawn(width: u16, widths: [u16; 3]) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, 3)).unwrap();
        let rows = [["short", "a longer cell", "the longest cell of all"].map(str::to_owned)];
        let content = Content {
            title: "Table",
            columns: &["A", "B", "C"],
            rows: &rows,
            widths,
            color: |_| Color::Reset,
            selected: None,
        };
        let draw = |frame: &mut Frame<'_>| draw_table(frame, frame.area(), &content);
        terminal.draw(draw).unwrap();
        let screen = terminal.backend().to_string();
        screen
            .lines()
            .last()
            .unwrap()
            .trim_matches('"')
            .trim_end()
            .to_owned()
    }

    #[test]
    fn a_letter_is_itself_and_a_key_without_a_meaning_is_none() {
        assert_eq!(meaning(KeyCode::Char('x')), Some(Key::Letter('x')));
        assert_eq!(meaning(INTERRUPT), Some(Key::Quit));
        assert_eq!(meaning(KeyCode::F(1)), None);
    }

    #[test]
    fn what_does_not_fit_ends_with_an_ellipsis_and_the_widest_column_gives_way_first() {
        let wide = [40; 3];
        assert_eq!(
            drawn(60, wide),
            "short  a longer cell  the longest cell of all"
        );
        assert_eq!(drawn(36, wide), "short  a longer cell  the lon…of all");
        assert_eq!(drawn(24, wide), "short  a lo…ell  the…all");
        assert_eq!(
            drawn(60, [3, 40, 40]),
            "s…t  a longer cell  the longest cell of all"
        );
    }
}
