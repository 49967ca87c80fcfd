//! Moves time: when the next thing happens, and what flows until then.

use super::{COPY, EPS, Run, STANDING_NS};
use crate::sim::scene::Scene;

impl Run<'_> {
    /// Share of a processor each packing and each unpacking job gets.
    fn shares(&self) -> (f64, f64) {
        let (pack, unpack) = (self.packing.len(), self.unpacking.len());
        let cores = f64::from(self.scene.cores);
        if self.scene.shared {
            let share = (cores / (pack + unpack).max(1) as f64).min(1.0);
            (share, share)
        } else {
            ((cores / pack.max(1) as f64).min(1.0), 1.0)
        }
    }

    /// What the link is filled with in the long run.
    fn refill(&self) -> f64 {
        Scene::step(&self.scene.link, self.now)
    }

    /// What it carries now.
    fn link(&self) -> f64 {
        if self.tokens > EPS {
            self.refill().max(COPY)
        } else {
            self.refill()
        }
    }

    fn fill_rate(&self) -> f64 {
        if self.kernel < self.scene.kernel_bytes - EPS {
            COPY
        } else {
            self.link().min(COPY)
        }
    }

    pub(super) fn next_event(&self, end_ns: f64) -> f64 {
        let mut dt = end_ns - self.now;
        let mut at = |moment: f64| {
            if moment > self.now + EPS {
                dt = dt.min(moment - self.now);
            }
        };
        let (pack, unpack) = self.shares();
        self.packing
            .iter()
            .for_each(|job| at(self.now + job.left_ns / pack));
        self.unpacking
            .iter()
            .for_each(|job| at(self.now + job.left_ns / unpack));
        let link = self.link();
        if let Some(left) = self.writing {
            let fill = self.fill_rate();
            at(self.now + left / fill);
            if fill > link {
                at(self.now + (self.scene.kernel_bytes - self.kernel) / (fill - link));
            }
        }
        if let Some((_, end)) = self.flying.front() {
            at(self.now + (end - self.drained) / link);
        }
        if self.tokens > EPS && link > self.refill() {
            at(self.now + self.tokens / (link - self.refill()));
        }
        for moment in [
            self.landing.front().map(|(_, moment)| *moment),
            self.credits.front().map(|(_, moment)| *moment),
            self.reports
                .front()
                .map(|report| report.now_ns as f64 + 1.0),
            Some(self.report_due),
            (self.waiting.len() < self.scene.workers as usize)
                .then(|| self.raw_read as f64 / self.scene.source + 0.01),
        ] {
            moment.into_iter().for_each(&mut at);
        }
        self.scene
            .link
            .iter()
            .for_each(|(moment, _)| at(*moment as f64));
        dt
    }

    pub(super) fn advance(&mut self, dt: f64) {
        let (pack, unpack) = self.shares();
        self.packing
            .iter_mut()
            .for_each(|job| job.left_ns -= dt * pack);
        self.unpacking
            .iter_mut()
            .for_each(|job| job.left_ns -= dt * unpack);
        let link = self.link();
        let fill = self.fill_rate();
        let mut filled = 0.0;
        if let Some(left) = self.writing {
            filled = left.min(fill * dt);
            self.sending_ns += filled / fill;
            self.written += filled;
            if left - filled <= EPS {
                self.written += left - filled;
                self.writing = None;
                self.flying.push_back((self.next_written - 1, self.written));
            } else {
                self.writing = Some(left - filled);
            }
        } else if self.next_written < self.trips.len() && self.trips[self.next_written].packed {
            self.starved_ns += dt;
        }
        let drained = (link * dt).min(self.kernel + filled);
        self.drained += drained;
        let left = self.kernel + filled - drained;
        if left > self.scene.flight_bytes + EPS {
            self.link_bytes += drained;
            self.link_ns += dt;
        }
        let queue = self.scene.flight_bytes.min(STANDING_NS * self.refill());
        if left > queue + EPS {
            self.full_ns += dt;
        }
        self.tokens =
            (self.tokens + self.refill() * dt - drained).clamp(0.0, self.scene.bucket_bytes);
        self.kernel = (self.kernel + filled - drained).max(0.0);
        if self.kernel == 0.0 {
            // Nothing left behind by rounding.
            self.drained = self.written;
        }
        self.now += dt;
    }
}
