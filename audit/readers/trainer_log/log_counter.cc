#include "audit/readers/trainer_log/log_counter.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "audit/readers/trainer_log/log_bytes.h"

namespace plumbline::audit {
namespace {

constexpr int64_t kMostEpoch = int64_t{1} << 40;

inline char LowerByte(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

inline bool IsPartOfName(char c) { return IsPairLetter(c) || IsPairDigit(c) || c == '_'; }

inline size_t Passed(std::string_view text, size_t at) {
  while (at < text.size() && IsSpaceByte(text[at])) ++at;
  return at;
}

inline bool At(std::string_view text, size_t at, char c) {
  return at < text.size() && text[at] == c;
}

// "100/5005", spaces allowed; the end, or `at` if there is none. A date ("2024/01/02") is none.
size_t ReadRatio(std::string_view text, size_t at, LogMark* mark) {
  int64_t step = 0, total = 0;
  const size_t first = ReadCount(text, at, &step);
  const size_t slash = Passed(text, first);
  if (first == at || !At(text, slash, '/')) return at;
  const size_t second = Passed(text, slash + 1);
  const size_t end = ReadCount(text, second, &total);
  if (end == second || step > total || At(text, end, '/') || At(text, end, '.')) return at;
  mark->step = step;
  mark->total = total;
  return end;
}

// "[  50/1251 (  4%)]"; the end, or `at`.
size_t ReadBracket(std::string_view text, size_t at, LogMark* mark) {
  if (!At(text, at, '[')) return at;
  const size_t first = Passed(text, at + 1);
  const size_t ratio = ReadRatio(text, first, mark);
  if (ratio == first) return at;
  size_t end = Passed(text, ratio);
  if (At(text, end, '(')) {
    const size_t close = text.find(')', end);
    if (close == std::string_view::npos || close - end > 8) return at;
    end = Passed(text, close + 1);
  }
  return At(text, end, ']') ? end + 1 : at;
}

// "batch 50", "Batch: 50/938", "batch=3"; the end, or `at`.
size_t ReadBatch(std::string_view text, size_t at, LogMark* mark) {
  static constexpr std::string_view kWords[] = {"batch", "batch_idx", "minibatch"};
  for (const std::string_view word : kWords) {
    if (!HasWordAt(text, at, word)) continue;
    size_t number = Passed(text, at + word.size());
    if (At(text, number, ':') || At(text, number, '=') || At(text, number, '#'))
      number = Passed(text, number + 1);
    if (At(text, number, '[')) number = Passed(text, number + 1);
    const size_t ratio = ReadRatio(text, number, mark);
    if (ratio != number) return At(text, ratio, ']') ? ratio + 1 : ratio;
    const size_t end = ReadCount(text, number, &mark->step);
    return end == number || At(text, end, '.') || At(text, end, '%') ? at : end;
  }
  return at;
}

// What counts batches behind an epoch that ends at `at`: signs and the glyphs of a bar may be
// between them.
size_t ReadBatches(std::string_view text, size_t at, LogMark* mark) {
  static constexpr Bytes kBetween(" \t,;:|-])");
  size_t from = at;
  while (from < text.size() &&
         (kBetween[text[from]] || static_cast<unsigned char>(text[from]) >= 0x80))
    ++from;
  size_t end = ReadBracket(text, from, mark);
  if (end == from) end = ReadBatch(text, from, mark);
  if (end == from) end = ReadRatio(text, from, mark);
  if (end == from) return at;
  mark->batches = true;
  return end;
}

// "(train)", "(val)".
size_t PassPhase(std::string_view text, size_t at, LogMark* mark) {
  if (!At(text, at, '(')) return at;
  const size_t close = text.find(')', at);
  if (close == std::string_view::npos || close - at > 8) return at;
  const std::string_view phase = text.substr(at + 1, close - at - 1);
  mark->evaluation = phase == "val" || phase == "test" || phase == "eval";
  return mark->evaluation || phase == "train" ? close + 1 : at;
}

// What may stand behind the number of an epoch.
bool EndsEpoch(std::string_view text, size_t at) {
  static constexpr Bytes kEnds(" \t|]),;:-{[");
  if (at == text.size()) return true;
  if (At(text, at, ':') && at + 1 < text.size() && IsPairDigit(text[at + 1])) return false;
  return kEnds[text[at]];
}

// `at` is behind the word "epoch".
std::optional<LogMark> EpochBehind(std::string_view text, size_t begin, size_t at) {
  LogMark mark;
  mark.begin = begin;
  at = Passed(text, PassPhase(text, at, &mark));
  const bool valued = At(text, at, ':') || At(text, at, '=') || At(text, at, '#');
  if (valued) at = Passed(text, at + 1);
  const bool bracket = At(text, at, '[');
  if (bracket) at = Passed(text, at + 1);
  const size_t number = at;
  at = ReadCount(text, at, &mark.epoch);
  if (at == number || mark.epoch > kMostEpoch) return std::nullopt;
  const size_t slash = Passed(text, at);
  int64_t epochs = 0;
  if (At(text, slash, '/')) {
    const size_t second = Passed(text, slash + 1);
    const size_t end = ReadCount(text, second, &epochs);
    if (end == second) return std::nullopt;
    at = end;
  }
  if (bracket) {
    at = Passed(text, at);
    if (!At(text, at, ']')) return std::nullopt;
    ++at;
  }
  if (!EndsEpoch(text, at)) return std::nullopt;
  mark.end = ReadBatches(text, at, &mark);
  mark.alone = !valued && mark.end == at;
  if (mark.batches) return mark;
  mark.kind = LogMark::Kind::kEpoch;
  mark.step = mark.epoch;
  return mark;
}

// ESPnet: "3epoch:train:101-200batch: ...", "3epoch results: ...". `at` is at the word.
std::optional<LogMark> EpochBefore(std::string_view text, size_t at) {
  size_t begin = at;
  while (begin > 0 && IsPairDigit(text[begin - 1])) --begin;
  LogMark mark;
  mark.begin = begin;
  if (begin == at || (begin > 0 && IsPartOfName(text[begin - 1]))) return std::nullopt;
  ReadCount(text.substr(0, at), begin, &mark.epoch);
  constexpr std::string_view kEpoch = "epoch";
  std::string_view rest = text.substr(at + kEpoch.size());
  if (rest.starts_with(" results")) {
    mark.kind = LogMark::Kind::kEpoch;
    mark.step = mark.epoch;
    mark.end = at + kEpoch.size() + 8;
    return mark;
  }
  const size_t batch = rest.find("batch:");
  if (!rest.starts_with(':') || batch == std::string_view::npos || batch > 48) return std::nullopt;
  mark.evaluation = rest.starts_with(":valid");
  const size_t dash = rest.rfind('-', batch);
  if (dash == std::string_view::npos || ReadCount(rest, dash + 1, &mark.step) != batch)
    return std::nullopt;
  mark.batches = true;
  mark.end = at + kEpoch.size() + batch + 6;
  return mark;
}

// Where "ep" begins from `at` on, in any case; the text's size: nowhere near.
size_t NextEp(std::string_view text, size_t at) {
  constexpr size_t kFar = 1024;
  const size_t limit = std::min(text.size(), kFar);
  for (; at + 1 < limit; ++at) {
    if ((text[at + 1] | 0x20) == 'p' && (text[at] | 0x20) == 'e') return at;
  }
  return text.size();
}

std::optional<LogMark> EpochIn(std::string_view text) {
  constexpr std::string_view kEpoch = "epoch";
  for (size_t at = NextEp(text, 0); at < text.size(); at = NextEp(text, at + 1)) {
    const bool apart = at == 0 || !IsPartOfName(text[at - 1]);
    const bool whole = HasWordAt(text, at, kEpoch);
    if (whole && at > 0 && IsPairDigit(text[at - 1])) {
      if (const std::optional<LogMark> mark = EpochBefore(text, at)) return mark;
    }
    if (!apart || (at > 0 && std::strchr("/-.'\"", text[at - 1]) != nullptr)) continue;
    const bool ends = text.substr(0, at).find("end of ") != std::string_view::npos;
    if (IsLimitBefore(text, at) && !ends) continue;
    const bool brief = !whole && (At(text, at + 2, '.') || HasWordAt(text, at, "ep"));
    if (!whole && !brief) continue;
    const size_t end = at + (whole ? kEpoch.size() : At(text, at + 2, '.') ? 3 : 2);
    if (const std::optional<LogMark> mark = EpochBehind(text, at, end)) return mark;
  }
  return std::nullopt;
}

// Marian's "Ep. 1 : Up. 100 :", where the updates count.
std::optional<LogMark> UpdateIn(std::string_view text) {
  const size_t at = text.find("Up. ");
  if (at == std::string_view::npos || (at > 0 && IsPartOfName(text[at - 1]))) return std::nullopt;
  LogMark mark;
  mark.begin = at;
  const size_t number = Passed(text, at + 3);
  mark.end = ReadCount(text, number, &mark.step);
  return mark.end == number ? std::nullopt : std::optional(mark);
}

// "Train: 0 [  50/1251 (  4%)]" behind the word: its epoch and batches.
std::optional<LogMark> PhaseAt(std::string_view text, size_t at, std::string_view phase) {
  LogMark mark;
  mark.begin = at;
  mark.evaluation = !phase.starts_with("train");
  at = Passed(text, at + phase.size());
  if (!At(text, at, ':')) return std::nullopt;
  at = Passed(text, at + 1);
  const size_t epoch = ReadCount(text, at, &mark.epoch);
  if (epoch == at) mark.epoch = -1;
  at = Passed(text, epoch);
  mark.end = ReadBracket(text, at, &mark);
  if (mark.end == at) return std::nullopt;
  // "Train: [4/300][40/200]"
  LogMark batches;
  if (const size_t second = ReadBracket(text, mark.end, &batches); second != mark.end) {
    mark.epoch = mark.step;
    mark.step = batches.step;
    mark.total = batches.total;
    mark.end = second;
  }
  mark.batches = true;
  return mark;
}

// "Train: 0 [  50/1251 (  4%)]", "Test:  [49/50]": a word behind a space, near the beginning.
std::optional<LogMark> PhaseIn(std::string_view text) {
  static constexpr std::string_view kPhases[] = {"train", "training",   "test", "val",
                                                 "valid", "validation", "eval", "evaluation"};
  constexpr size_t kFar = 96;
  static constexpr Bytes kFirst("tTvVeE");
  if (text.find('[') == std::string_view::npos) return std::nullopt;
  for (size_t at = 0; at < text.size() && at <= kFar + 1; ++at) {
    if (!kFirst[text[at]] || (at > 0 && text[at - 1] != ' ')) continue;
    for (const std::string_view phase : kPhases) {
      if (!HasWordAt(text, at, phase)) continue;
      if (const std::optional<LogMark> mark = PhaseAt(text, at, phase)) return mark;
    }
  }
  return std::nullopt;
}

// At the line's beginning: "[12]\ttrain-rmse:0.5" (XGBoost, LightGBM; a time may stand before it),
// "12:\tlearn: 0.5" (CatBoost), "[3/25][50/1583]", "[1,  2000]".
std::optional<LogMark> LeadingCount(std::string_view text) {
  LogMark mark;
  size_t at = Passed(text, 0);
  const size_t plain = ReadCount(text, at, &mark.step);
  if (plain != at) {
    const size_t next = Passed(text, plain + 1);
    mark.begin = at;
    mark.end = plain + 1;
    const bool learns = At(text, plain, ':') && (text.substr(next).starts_with("learn:") ||
                                                 text.substr(next).starts_with("test:") ||
                                                 text.find(" avg loss, ") != text.npos);
    return learns ? std::optional(mark) : std::nullopt;
  }
  // "I0514 03:22:10.123456 139812345 logging_writer.py:48] [100] loss=2.3" of absl.
  const bool google = text.size() > 8 && std::strchr("IWE", text[0]) != nullptr &&
                      IsPairDigit(text[1]) && IsPairDigit(text[4]) && text[5] == ' ';
  if (const size_t close = google ? text.find("] [") : text.npos; close < 96) at = close + 2;
  // A time in brackets of its own.
  if (At(text, at, '[') && at + 9 < text.size() && text[at + 3] == ':' && text[at + 9] == ']')
    at = Passed(text, at + 10);
  if (!At(text, at, '[')) return std::nullopt;
  mark.begin = at;
  LogMark epochs;
  const size_t both = ReadBracket(text, at, &epochs);
  if (both != at) {
    const size_t second = ReadBracket(text, Passed(text, both), &mark);
    if (second == Passed(text, both)) return std::nullopt;
    mark.epoch = epochs.step;
    mark.batches = true;
    mark.end = second;
    return mark;
  }
  const size_t first = Passed(text, at + 1);
  const size_t end = ReadCount(text, first, &mark.step);
  if (end == first) return std::nullopt;
  if (At(text, end, ',')) {
    mark.epoch = mark.step;
    const size_t number = Passed(text, end + 1);
    const size_t close = Passed(text, ReadCount(text, number, &mark.step));
    if (close == number || !At(text, close, ']')) return std::nullopt;
    mark.batches = true;
    mark.end = close + 1;
    return mark;
  }
  if (!At(text, end, ']') || !(At(text, end + 1, '\t') || At(text, end + 1, ' ')))
    return std::nullopt;
  // A name and a colon follow at once: no message that is numbered.
  const std::string_view rest = text.substr(Passed(text, end + 1));
  const size_t colon = rest.find_first_of(":=");
  if (colon == std::string_view::npos || colon == 0 || colon > 64 || !IsPairLetter(rest[0]) ||
      colon + 1 >= rest.size())
    return std::nullopt;
  mark.end = end + 1;
  return mark;
}

// "loss: 2.30  [ 6400/60000]": at the line's end.
std::optional<LogMark> TrailingCount(std::string_view text) {
  const size_t last = text.find_last_not_of(" \t");
  if (last == std::string_view::npos || text[last] != ']') return std::nullopt;
  const size_t open = text.rfind('[', last);
  if (open == std::string_view::npos || last - open > 40) return std::nullopt;
  LogMark mark;
  mark.begin = open;
  mark.end = ReadBracket(text, open, &mark);
  mark.batches = true;
  return mark.end == last + 1 ? std::optional(mark) : std::nullopt;
}

// "Batch 50/938, Loss: 2.1", "[batch=3/100]:", "Episode 10 reward: 3".
std::optional<LogMark> WordCount(std::string_view text) {
  static constexpr std::string_view kWords[] = {"batch",     "episode",    "timestep",
                                                "timesteps", "generation", "round"};
  const size_t limit = std::min<size_t>(text.size(), 96);
  for (size_t at = 0; at < limit; ++at) {
    static constexpr Bytes kFirst("bBeEtTgGrR");
    if (!kFirst[text[at]] ||
        (at > 0 && (IsPartOfName(text[at - 1]) || std::strchr("/-.'\"", text[at - 1]) != nullptr)))
      continue;
    for (const std::string_view word : kWords) {
      if (LowerByte(text[at]) != word[0] || !HasWordAt(text, at, word) || IsLimitBefore(text, at))
        continue;
      LogMark mark;
      mark.begin = at;
      size_t number = Passed(text, at + word.size());
      const bool valued = At(text, number, ':') || At(text, number, '=');
      if (valued) number = Passed(text, number + 1);
      mark.end = ReadRatio(text, number, &mark);
      if (mark.end == number) mark.end = ReadCount(text, number, &mark.step);
      if (mark.end == number || !EndsEpoch(text, mark.end)) continue;
      mark.batches = word == "batch";
      const bool opened = at > 0 && text[at - 1] == '[';
      mark.alone = opened && At(text, mark.end, ']');
      if (mark.alone) ++mark.end;
      return mark;
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<LogMark> FindCounter(std::string_view line) {
  if (std::optional<LogMark> epoch = EpochIn(line)) {
    if (std::optional<LogMark> update = UpdateIn(line)) {
      update->epoch = epoch->epoch;
      return update;
    }
    // "[Train] Epoch 3 ... loss: 2.1  [640/60000]".
    if (epoch->kind == LogMark::Kind::kEpoch) {
      if (const std::optional<LogMark> batches = TrailingCount(line)) {
        if (batches->begin >= epoch->end) {
          LogMark both = *batches;
          both.epoch = epoch->epoch;
          return both;
        }
      }
    }
    return epoch;
  }
  if (std::optional<LogMark> mark = PhaseIn(line)) return mark;
  if (std::optional<LogMark> mark = LeadingCount(line)) return mark;
  if (std::optional<LogMark> mark = TrailingCount(line)) return mark;
  return WordCount(line);
}

}  // namespace plumbline::audit
