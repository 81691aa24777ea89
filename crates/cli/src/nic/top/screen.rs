//! The terminal screen of `nichrome top`.

use std::convert::Infallible;
use std::io;
use std::ops::ControlFlow;
use std::process;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyModifiers};
use ratatui::crossterm::terminal::disable_raw_mode;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Block, Row, Table};
use ratatui::{DefaultTerminal, Frame};

use super::rates::{COLUMNS, Interval, Rates, grouped};
use super::view::View;
use crate::signals;

/// The screen; restored on drop.
pub(super) struct Screen(DefaultTerminal);

impl Screen {
    /// Opens the screen. From now on, a signal that ends the process restores the terminal first.
    pub(super) fn open() -> anyhow::Result<Self> {
        signals::forward(&signals::ending_or_quitting(), |signal| -> Result<(), Infallible> {
            // Fails if the terminal is gone.
            let _ = disable_raw_mode();
            let (restored, is_restored) = mpsc::channel();
            thread::spawn(move || {
                // Locked until the process ends, so that nothing is drawn on the restored terminal.
                let _output = io::stdout().lock();
                let _ = ratatui::try_restore();
                let _ = restored.send(());
                thread::park();
            });
            // A terminal that accepts no output delays the end by a second at most.
            let _ = is_restored.recv_timeout(Duration::from_secs(1));
            process::exit(128 + signal)
        })?;
        let mut terminal = ratatui::try_init()?;
        terminal.draw(|frame| frame.render_widget("one moment …", frame.area()))?;
        Ok(Self(terminal))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

impl View for Screen {
    fn wait(&mut self, interval: Duration) -> io::Result<ControlFlow<()>> {
        let until = Instant::now() + interval;
        loop {
            let remaining = until.saturating_duration_since(Instant::now());
            if !event::poll(remaining)? {
                return Ok(ControlFlow::Continue(()));
            }
            if let Event::Key(key) = event::read()?
                && ends(key)
            {
                return Ok(ControlFlow::Break(()));
            }
        }
    }

    fn show(&mut self, interval: &Interval<'_>) -> io::Result<()> {
        self.0.draw(|frame| draw(frame, interval)).map(drop)
    }
}

fn ends(key: KeyEvent) -> bool {
    let is_interrupt = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    is_interrupt || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc)
}

fn draw(frame: &mut Frame<'_>, interval: &Interval<'_>) {
    let queues = interval.queues().count();
    let [title, table, reasons, keys] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Length(queues as u16 + 3),
        Constraint::Min(3),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(heading(interval), title);
    frame.render_widget(rates(interval), table);
    let [why, lost] = Layout::horizontal([Constraint::Fill(1); 2]).areas(reasons);
    let total = interval.total();
    draw_named(frame, why, " reasons per second ", &total.reasons().into_iter().collect::<Vec<_>>());
    draw_named(frame, lost, " lost per second ", &total.lost().into_iter().collect::<Vec<_>>());
    frame.render_widget(Line::from("q quits"), keys);
}

fn heading(interval: &Interval<'_>) -> Line<'static> {
    let card = &interval.after.card;
    let text = format!(
        "{} on {} by {}, profile {}, up for {:.0} s",
        card.host, card.wire, card.backend, card.profile, interval.after.uptime_s
    );
    Line::styled(text, Style::new().add_modifier(Modifier::BOLD))
}

fn rates(interval: &Interval<'_>) -> Table<'static> {
    let row = |name: String, rates: &Rates<'_>| {
        let values = COLUMNS.map(|(_, value)| Line::from(value(rates)).right_aligned());
        Row::new([Line::from(name)].into_iter().chain(values))
    };
    let queues = interval.queues().enumerate().map(|(number, rates)| row(format!("queue {number}"), &rates));
    let total = row("total".into(), &interval.total());
    let headings = COLUMNS.map(|(heading, _)| Line::from(heading).right_aligned());
    let widths = [Constraint::Length(9)].into_iter().chain([Constraint::Fill(1); COLUMNS.len()]);
    Table::new(std::iter::once(total).chain(queues), widths)
        .header(Row::new([Line::default()].into_iter().chain(headings)).underlined())
}

fn draw_named(frame: &mut Frame<'_>, area: Rect, title: &'static str, named: &[(String, f64)]) {
    let rows = named
        .iter()
        .map(|(name, rate)| Row::new([Line::from(name.clone()), Line::from(grouped(*rate)).right_aligned()]));
    let table = Table::new(rows, [Constraint::Fill(2), Constraint::Fill(1)]);
    frame.render_widget(table.block(Block::bordered().title(title)), area);
}
