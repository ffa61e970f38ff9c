#include "tests/analysis/series/slow_series.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <limits>

namespace plumbline::analysis::testing {
namespace {

using List = std::vector<double>;

double Median(List v) {
  std::sort(v.begin(), v.end());
  const size_t n = v.size();
  return n % 2 == 1 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

double Mad(const List& v) {
  const double m = Median(v);
  List d;
  for (double x : v) d.push_back(std::fabs(x - m));
  return 1.4826 * Median(d);
}

List Tail(const List& v, size_t n) { return {v.end() - static_cast<std::ptrdiff_t>(n), v.end()}; }

struct Compared {
  double m, s, b;
  uint64_t w;
  bool scatters;
};

// Returns the frame for comparison with the points after `history`.
Compared FrameOf(const List& history, bool linear) {
  size_t w = std::min<size_t>(128, std::max<size_t>(16, history.size() / 2));
  w -= w % 2;
  const List window = Tail(history, w);
  const size_t half = w / 2;
  const List first(window.begin(), window.begin() + static_cast<std::ptrdiff_t>(half));
  Compared is{};
  is.w = w;
  is.b = (Median(Tail(window, half)) - Median(first)) / static_cast<double>(half);
  is.m = Median(Tail(window, std::max<size_t>(8, w / 4)));
  List rest;
  for (size_t i = 0; i < w; ++i) rest.push_back(window[i] - is.b * static_cast<double>(i));
  is.s = Mad(rest) * (static_cast<double>(w) / static_cast<double>(w - 4));
  const double deviation = is.s;
  is.s = std::max(is.s, linear ? 0.005 * std::fabs(is.m) : 0.005);
  List sorted = window;
  std::sort(sorted.begin(), sorted.end());
  double gap = INFINITY;
  for (size_t i = 1; i < w; ++i) {
    if (sorted[i] != sorted[i - 1]) gap = std::min(gap, sorted[i] - sorted[i - 1]);
  }
  if (gap < INFINITY) is.s = std::max(is.s, gap);
  if (linear) {  // the remainder without the three farthest
    List squares;
    for (const double r : rest) squares.push_back(std::pow(r - Median(rest), 2));
    std::sort(squares.begin(), squares.end());
    double sum = 0;
    for (size_t i = 0; i + 3 < w; ++i) sum += squares[i];
    const double spread = std::sqrt(sum / static_cast<double>(w - 3));
    is.scatters = spread <= 1.5 * std::max(deviation, 0.005 * std::fabs(is.m));
    is.s = std::max(is.s, spread);
  }
  return is;
}

double Level(double m, double b, double d, double t) {
  return m + std::min(b, 0.0) * t * std::log1p(std::min(d, 128.0) / t);
}

double Share(double x, double m, double s, bool linear) {
  return linear ? x * std::max(std::fabs(m), 60 * s) : std::log1p(x);
}

struct Slow {
  struct P {
    int64_t step;
    double y;
    size_t ordinal;
  };
  bool linear = false;
  std::vector<P> history;
  std::vector<std::vector<P>> epochs{{}};  // histories after each restart, for rises
  List above;                              // by ordinal
  size_t floor = 0;                        // of onsets, in history
  uint64_t restart_until = 0;
  SlowAnswer answer;
  bool mute = false;

  List Ys(size_t n) const {
    List ys;
    for (size_t i = 0; i < n; ++i) ys.push_back(history[i].y);
    return ys;
  }

  void Report(const char* what, const std::string& rest) {
    if (!mute) answer.excursions.push_back(std::string(what) + " " + rest);
  }

  // An open excursion: its points from the onset on.
  std::vector<P> in;
  size_t onset = 0, opening = 0;
  Compared f{};
  double before = 0;
  size_t compared = 0;
  bool is_open = false, decided = false, warned = false, lasting = false, outstanding = false,
       third = false, restart = false, jumped = false;
  std::string kind;
  double e1 = 0, e4 = 0;

  double Excess(size_t i) const {
    const double d = i > opening ? static_cast<double>(i - opening) : 0;
    return in[i].y - Level(f.m, f.b, d, static_cast<double>(onset));
  }
  bool Above(size_t i) const { return Excess(i) >= 3 * f.s && in[i].y > f.m; }
  size_t LastAbove() const {
    size_t last = 0;
    for (size_t i = 0; i < in.size(); ++i) last = Above(i) ? i + 1 : last;
    return last;
  }
  size_t CountAbove() const {
    size_t n = 0;
    for (size_t i = 0; i < in.size(); ++i) n += Above(i) ? 1 : 0;
    return n;
  }
  bool Short() const { return CountAbove() <= 3 || 2 * CountAbove() <= LastAbove(); }
  double Peak() const {
    double peak = 0;
    for (size_t i = 0; i < in.size(); ++i) peak = Above(i) ? std::max(peak, Excess(i)) : peak;
    return peak;
  }
  bool Warns() const {
    if (restart && !third) return false;
    if (linear && std::fabs(f.m) < 60 * f.s)
      return lasting && Peak() >= 1.5 * before &&
             (compared >= 128 || (jumped && f.scatters && f.w >= 24 && Peak() >= 16 * f.s));
    return lasting || outstanding;
  }

  std::string Words() const {
    double peak = 0;
    int64_t peak_step = 0;
    for (size_t i = 0; i < in.size(); ++i) {
      if (!Above(i) || !(Excess(i) > peak)) continue;
      peak = Excess(i);
      peak_step = in[i].step;
    }
    char text[256];
    std::snprintf(
        text, sizeof(text),
        "%s %s onset %lld peak %lld %.9g level %.9g scale %.9g before %.9g points %zu/%zu "
        "quarters %.9g %.9g%s",
        kind.c_str(), Warns() ? "warns" : "note", static_cast<long long>(in[0].step),
        static_cast<long long>(peak_step), peak, f.m, f.s, before, CountAbove(), LastAbove(), e1,
        e4, linear ? " linear" : "");
    return text;
  }

  void Open(size_t at, const Compared& frame, bool at_once) {
    const double rise = history[at].y - history[at - 1].y, above_level = history[at].y - frame.m;
    size_t o = at;
    const size_t least = std::max({floor, size_t{16}, at - std::min<size_t>(at, 128)});
    while (o > least) {
      const Compared c = FrameOf(Ys(o - 1), linear);
      if (!(history[o - 1].y - c.m >= 3 * c.s) || !(history[o - 1].y > c.m)) break;
      --o;
    }
    in.assign(history.begin() + static_cast<std::ptrdiff_t>(o), history.end());
    history.resize(o);
    f = frame;
    onset = in[0].ordinal;
    opening = at - o;
    before = -INFINITY;
    compared = 0;
    for (size_t i = onset < 512 ? 0 : onset - 512; i < onset; ++i)
      if (above[i] == above[i]) {
        before = std::max(before, above[i]);
        ++compared;
      }
    restart = onset < restart_until;
    jumped = at_once && rise >= 0.75 * above_level;
    is_open = true;
    decided = warned = lasting = outstanding = third = false;
    kind = "spike";
    e1 = e4 = 0;
    // Replays the points as they arrived.
    const std::vector<P> all = in;
    in.clear();
    for (const P& p : all) {
      in.push_back(p);
      Look();
    }
    warned = Warns();
    Report("opened", Words());
    GoOn();
  }

  void Look() {
    const size_t i = in.size() - 1;
    if (!Above(i)) return;
    lasting |= !Short();
    const double e = Excess(i);
    outstanding |= e >= 2.5 * before && (compared >= 128 || e >= 16 * f.s);
    third |= Excess(i) >= Share(1.0 / 3, f.m, f.s, linear);
  }

  size_t Under() const {
    size_t n = 0;
    for (size_t i = in.size(); i-- > opening + 1 && !Above(i);) ++n;
    return n;
  }

  // Returns true if the last half falls: the 99 % interval of the slope of its 16 block medians is
  // below 0.
  static bool FallsBack(const List& over, double r1, double r4) {
    const size_t block = over.size() / 2 / 16;
    if (block == 0 || r4 > 0.9 * r1) return false;
    const List half = Tail(over, 16 * block);
    List medians, slopes;
    for (size_t i = 0; i < half.size(); i += block) {
      const auto from = half.begin() + static_cast<std::ptrdiff_t>(i);
      medians.push_back(Median({from, from + static_cast<std::ptrdiff_t>(block)}));
    }
    for (size_t i = 0; i < 16; ++i) {
      for (size_t k = i + 1; k < 16; ++k)
        slopes.push_back((medians[k] - medians[i]) / static_cast<double>(k - i));
    }
    std::sort(slopes.begin(), slopes.end());
    const double c = 2.5758293 * std::sqrt(16 * 15 * 37 / 18.0);  // Kendall's statistic, 16 values
    const double rank = std::floor((static_cast<double>(slopes.size()) - c) / 2);
    return slopes[slopes.size() - static_cast<size_t>(rank)] < 0;
  }

  void Decide() {
    decided = true;
    const size_t n = in.size(), q = n / 4;
    if (n < 16) return;
    List excess;
    for (size_t i = 0; i < n; ++i) excess.push_back(Excess(i));
    e1 = Median({excess.begin(), excess.begin() + static_cast<std::ptrdiff_t>(q)});
    e4 = Median(Tail(excess, q));
    if (e4 < 0.8 * e1) return;
    List over;  // the level at that time
    for (const P& p : in) over.push_back(p.y - f.m);
    const double r1 = Median({over.begin(), over.begin() + static_cast<std::ptrdiff_t>(q)});
    const double r4 = Median(Tail(over, q));
    const bool stays = r4 >= Share(1.0 / 3, f.m, f.s, linear) && !FallsBack(over, r1, r4);
    if ((e4 > 1.5 * e1 && r4 > r1) || stays) {
      kind = "divergence";
    } else if (n >= 64) {
      kind = "level-shift";
    }
  }

  void Put(const P& p) { history.push_back(p); }
  // Appends the points to the history from number `from` on, or starts a new history.
  void Close(size_t from, bool anew) {
    is_open = false;
    if (anew) {
      epochs.back() = history;
      epochs.emplace_back();
      history.clear();
    }
    for (size_t i = from; i < in.size(); ++i) Put(in[i]);
    floor = history.size();
  }

  void Back(size_t under) {
    const bool diverged = kind == "divergence";
    if (!decided || diverged) kind = "recovered";
    if (diverged) Report("returned", Words());
    if (!decided) Report("settled", Words());
    Close(!diverged && Short() ? 0 : in.size() - under, false);
  }

  void GoOn() {
    if (Warns() && !warned) {
      warned = true;
      Report("grew", Words());
    }
    if (Under() == 3) return Back(3);
    if (!decided && in.size() >= 128 && Under() == 0) {
      Decide();
      Report("settled", Words());
      if (kind == "level-shift") return Close(0, !Short());
    }
    if (kind == "spike" && in.size() >= 512) Close(in.size() - 128, true);
  }

  void End() {
    if (is_open && Under() > 0) {
      Back(Under());
    } else if (is_open) {
      if (!decided) {
        Decide();
        Report("settled", Words());
      }
      const bool shift = kind == "level-shift" && !Short();
      Close(shift || (kind != "divergence" && Short()) ? 0 : in.size(), shift);
    }
    floor = history.size();
    frames.clear();
  }

  std::vector<Compared> frames;  // of waiting points
  std::vector<size_t> waiting;   // in history

  void Take(int64_t step, double y) {
    const P p{step, y, above.size()};
    if (is_open) {
      in.push_back(p);
      above.push_back(Excess(in.size() - 1));
      Look();
      return GoOn();
    }
    if (history.size() < 16) {
      above.push_back(NAN);
      return Put(p);
    }
    const Compared c = FrameOf(Ys(history.size()), linear);
    above.push_back(y - c.m);
    const size_t at = history.size();
    Put(p);
    const bool far = c.s > 0 && y - c.m >= 6 * c.s;
    if (far) {
      waiting.push_back(at);
      frames.push_back(c);
    }
    for (size_t k = 0; k < waiting.size(); ++k) {
      if (at - waiting[k] > 8) continue;
      size_t n = 0;
      for (size_t i = waiting[k]; i <= at; ++i) {
        const double level = Level(frames[k].m, frames[k].b, static_cast<double>(i - waiting[k]),
                                   static_cast<double>(history[waiting[k]].ordinal));
        n += i == waiting[k] || history[i].y - level >= 3 * frames[k].s ? 1 : 0;
      }
      if (n < 7) continue;
      const size_t opens = waiting[k];
      const Compared frame = frames[k];
      waiting.clear();
      frames.clear();
      return Open(opens, frame, false);
    }
    if (far && y - c.m >= 8 * c.s && y - c.m >= Share(0.1, c.m, c.s, linear)) {
      waiting.clear();
      frames.clear();
      Open(at, c, true);
    }
  }
};

// ---- rises ----

double Remedian(const List& v, size_t from, size_t length) {
  if (length == 1) return v[from];
  const size_t third = length / 3;
  return Median({Remedian(v, from, third), Remedian(v, from + third, third),
                 Remedian(v, from + 2 * third, third)});
}

double SlopeLow(const List& since) {
  size_t length = 1;
  while (since.size() / length >= 288) length *= 3;
  List blocks;
  for (size_t i = 0; i + length <= since.size(); i += length)
    blocks.push_back(Remedian(since, i, length));
  const size_t each = std::max<size_t>(1, (blocks.size() + 95) / 96);
  List gathered;
  for (size_t i = 0; i + each <= blocks.size(); i += each)
    gathered.push_back(Median({blocks.begin() + static_cast<std::ptrdiff_t>(i),
                               blocks.begin() + static_cast<std::ptrdiff_t>(i + each)}));
  List slopes;
  for (size_t i = 0; i < gathered.size(); ++i)
    for (size_t k = i + 1; k < gathered.size(); ++k)
      slopes.push_back((gathered[k] - gathered[i]) / static_cast<double>(k - i));
  std::sort(slopes.begin(), slopes.end());
  const auto n = static_cast<double>(gathered.size());
  const double c = 2.5758293035489004 * std::sqrt(n * (n - 1) * (2 * n + 5) / 18);
  const double rank = std::floor((static_cast<double>(slopes.size()) - c) / 2);
  if (!(rank >= 1)) return -INFINITY;
  return slopes[static_cast<size_t>(rank) - 1] / static_cast<double>(length * each);
}

void Rises(const std::vector<Slow::P>& history, bool linear, std::vector<std::string>* words) {
  List y, levels;
  int reported = 0;
  double reported_sigma = 0;
  size_t next_look = 0, best_was = 0;
  bool first_look = true;
  double near = 0, apart = 0;
  for (const Slow::P& p : history) {
    y.push_back(p.y);
    const size_t n = y.size();
    const size_t block = std::min<size_t>(64, std::max<size_t>(8, n / 8));
    levels.push_back(n >= block ? Median(Tail(y, block)) : INFINITY);
    size_t best = 0;  // points up to its end
    for (size_t j = 8; j + block <= n; ++j)
      if (best == 0 || levels[j - 1] < levels[best - 1]) best = j;
    if (best == 0) continue;
    if (best != best_was) {
      next_look = 0;
      first_look = true;
    }
    best_was = best;
    const double low = levels[best - 1], rise = levels.back() - low;
    if (reported > 0 && rise < Share(0.1, low, reported_sigma, linear) / 2) {
      reported = 0;
      words->push_back("fell at " + std::to_string(p.step));
    }
    if (reported == 2) continue;
    const double share = reported == 0 ? 0.1 : 1.0 / 3;
    const size_t since = n - best;
    if (!(rise >= Share(share, low, 0, linear)) || n < 48 || since < next_look) continue;
    next_look = since + std::max<size_t>(1, since / 32);
    const auto sigma_of = [&](size_t from, size_t to, size_t lag) {
      List differences;
      for (size_t i = from + lag; i < to; ++i) differences.push_back(y[i] - y[i - lag]);
      return differences.empty() ? 0 : Mad(differences) / std::sqrt(2.0);
    };
    const double sigma = sigma_of(n - std::min(n, 2 * block), n, 1);
    const size_t best_block = std::min<size_t>(64, std::max<size_t>(8, best / 8));
    if (first_look) {  // of those within the newest 512
      const size_t oldest = n < 512 ? 0 : n - 512;
      const size_t to = std::max(best, std::min(n, oldest + 4 * best_block));
      const size_t from = std::max(oldest, to < 8 * best_block ? 0 : to - 8 * best_block);
      near = sigma_of(from, to, 1);
      apart = sigma_of(from, to, 2 * best_block);
      first_look = false;
    }
    double error =
        1.25 * std::sqrt(1.0 / static_cast<double>(block) + 1.0 / static_cast<double>(best_block));
    if (apart > near) {
      const double r = 1 - std::pow(near / apart, 2);
      error *= std::max(sigma, apart) * std::sqrt((1 + r) / (1 - r));
    } else {
      error *= sigma;
    }
    if (!(rise >= 6 * error)) continue;
    const double whole = std::max(sigma, apart);
    if (!(rise >= Share(share, low, whole, linear))) continue;
    if (linear && std::fabs(low) < 60 * whole && n < 512) continue;
    const double slope = SlopeLow({y.begin() + static_cast<std::ptrdiff_t>(best), y.end()});
    if (!(slope > 0)) continue;
    reported = rise >= Share(1.0 / 3, low, whole, linear) ? 2 : 1;
    reported_sigma = whole;
    char text[160];
    std::snprintf(text, sizeof(text),
                  "rise at %lld from %.9g to %.9g sigma %.9g slope %.9g since %zu",
                  static_cast<long long>(p.step), low, levels.back(), sigma, slope, since);
    words->push_back(text);
  }
}

}  // namespace

SlowAnswer JudgeSlowly(const std::vector<SlowPoint>& history, const std::vector<SlowPoint>& points,
                       const std::set<uint64_t>& restarts) {
  Slow slow;
  slow.mute = true;
  // The values themselves if the first is not positive.
  const auto take = [&](const SlowPoint& p) {
    if (!std::isfinite(p.value)) return;
    slow.Take(p.step, slow.linear ? p.value : std::log(p.value));
  };
  slow.linear = (history.empty() ? points : history).front().value <= 0;
  for (const SlowPoint& p : history) take(p);
  slow.End();
  slow.waiting.clear();
  slow.mute = false;
  for (size_t i = 0; i < points.size(); ++i) {
    if (restarts.contains(i)) slow.restart_until = slow.above.size() + 128;
    take(points[i]);
  }
  slow.End();
  slow.epochs.back() = slow.history;
  if (history.empty() && restarts.empty()) {
    for (const auto& epoch : slow.epochs) Rises(epoch, slow.linear, &slow.answer.rises);
  }
  return slow.answer;
}

}  // namespace plumbline::analysis::testing
