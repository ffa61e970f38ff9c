#include "audit/readers/trainer_log/log_counter.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>

#include "audit/readers/log_text/log_bytes.h"
#include "audit/readers/log_text/log_words.h"
#include "audit/readers/scalars/number_text.h"
#include "audit/readers/trainer_log/log_counts.h"
#include "audit/readers/trainer_log/log_lead.h"
#include "audit/readers/trainer_log/log_signs.h"

namespace plumbline::audit {
namespace {

constexpr int64_t kMostEpoch = int64_t{1} << 40;

// Returns true if the number of an epoch may end at `at`.
bool EndsEpoch(std::string_view text, size_t at) {
  static constexpr Bytes kEnds(" \t|]),;:-{[");
  if (at == text.size() || text.substr(at, 2) == ". ") return true;
  if (ByteIs(text, at, ':') && at + 1 < text.size() && IsPairDigit(text[at + 1])) return false;
  return kEnds[text[at]];
}

// Reads the epoch after the word "epoch", which ends at `at`.
std::optional<LogMark> EpochAfter(std::string_view text, size_t begin, size_t at) {
  LogMark mark;
  mark.begin = begin;
  at = PassBlanks(text, PassPhase(text, at, &mark));
  const bool valued = ByteIs(text, at, ':') || ByteIs(text, at, '=') || ByteIs(text, at, '#');
  if (valued) at = PassBlanks(text, at + 1);
  const bool bracket = ByteIs(text, at, '[');
  if (bracket) at = PassBlanks(text, at + 1);
  const size_t number = at;
  at = ReadLogCount(text, at, &mark.epoch);
  if (at == number || mark.epoch > kMostEpoch) return std::nullopt;
  int64_t epochs = 0;
  const size_t total = ReadTotal(text, at, &epochs);
  if (total == at && ByteIs(text, PassBlanks(text, at), '/')) return std::nullopt;
  at = total;
  if (bracket) {
    at = PassBlanks(text, at);
    if (!ByteIs(text, at, ']')) return std::nullopt;
    ++at;
  }
  if (!EndsEpoch(text, at)) return std::nullopt;
  mark.end = ReadBatches(text, at, &mark);
  mark.alone = (!valued || epochs > 0) && mark.end == at;
  mark.valued = valued && epochs == 0;
  if (mark.batches) return mark;
  mark.kind = LogMark::Kind::kEpoch;
  mark.step = mark.epoch;
  return mark;
}

// Reads ESPnet's "3epoch:train:101-200batch: ..." or "3epoch results: ...". The word is at `at`.
std::optional<LogMark> EpochBefore(std::string_view text, size_t at) {
  size_t begin = at;
  while (begin > 0 && IsPairDigit(text[begin - 1])) --begin;
  LogMark mark;
  mark.begin = begin;
  if (begin == at || (begin > 0 && IsPartOfName(text[begin - 1]))) return std::nullopt;
  ReadLogCount(text.substr(0, at), begin, &mark.epoch);
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
  if (dash == std::string_view::npos || ReadLogCount(rest, dash + 1, &mark.step) != batch)
    return std::nullopt;
  mark.batches = true;
  mark.end = at + kEpoch.size() + batch + 6;
  return mark;
}

// Returns the next "ep" from `at` on, in any case; the text's size if none is near.
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
    // FANN prints "Epochs          100. Current error: 0.23."
    if (HasWordAt(text, at, "epochs") && text.find(". Current error: ", at) != text.npos) {
      if (const std::optional<LogMark> mark = EpochAfter(text, at, at + 6)) return mark;
    }
    const bool brief = !whole && (ByteIs(text, at + 2, '.') || HasWordAt(text, at, "ep"));
    if (!whole && !brief) continue;
    const size_t end = at + (whole ? kEpoch.size() : ByteIs(text, at + 2, '.') ? 3 : 2);
    if (const std::optional<LogMark> mark = EpochAfter(text, at, end)) return mark;
  }
  return std::nullopt;
}

// Reads the number of updates in Marian's "Ep. 1 : Up. 100 :" or flashlight's "epoch: 1 | nupdates:
// 1000 |".
std::optional<LogMark> UpdateIn(std::string_view text) {
  static constexpr std::string_view kWords[] = {"Up. ", "nupdates: "};
  for (const std::string_view word : kWords) {
    const size_t at = text.find(word);
    if (at == std::string_view::npos || (at > 0 && IsPartOfName(text[at - 1]))) continue;
    LogMark mark;
    mark.begin = at;
    const size_t number = PassBlanks(text, at + word.size());
    mark.end = ReadLogCount(text, number, &mark.step);
    if (mark.end != number) return mark;
  }
  return std::nullopt;
}

// Reads the epochs in Catalyst's "train (1/120)". The parenthesis is at `at`.
std::optional<LogMark> PhaseOfEpochs(std::string_view text, size_t at, LogMark mark) {
  mark.end = ReadRatio(text, at + 1, &mark);
  if (mark.end == at + 1 || !ByteIs(text, mark.end, ')')) return std::nullopt;
  ++mark.end;
  mark.kind = LogMark::Kind::kEpoch;
  mark.epoch = mark.step;
  return mark;
}

// Reads epoch and batches after a phase: "Train: 0 [  50/1251 (  4%)]", "Train:    1/80 (  1%) [
// 50/1000 (  5%)]", "Train: [4/300][40/200]", "train: [1][10/1000]", "Training  [  10/125000]".
std::optional<LogMark> PhaseAt(std::string_view text, size_t at, std::string_view phase) {
  LogMark mark;
  mark.begin = at;
  mark.evaluation = !phase.starts_with("train");
  at = PassBlanks(text, at + phase.size());
  if (ByteIs(text, at, '(')) return PhaseOfEpochs(text, at, mark);
  if (ByteIs(text, at, ':')) {
    at = PassBlanks(text, at + 1);
  } else if (!ByteIs(text, at, '[')) {
    return std::nullopt;
  }
  const size_t epoch = ReadLogCount(text, at, &mark.epoch);
  if (epoch == at) mark.epoch = -1;
  int64_t epochs = 0;
  at = epoch == at ? at : PassShare(text, ReadTotal(text, epoch, &epochs));
  at = PassBlanks(text, at);
  mark.batches = true;
  mark.end = ReadBracket(text, at, &mark);
  if (mark.end == at) {
    if (!ByteIs(text, at, '[')) return std::nullopt;
    const size_t close = ReadLogCount(text, at + 1, &mark.epoch);
    if (close == at + 1 || !ByteIs(text, close, ']')) return std::nullopt;
    mark.end = ReadBracket(text, close + 1, &mark);
    return mark.end == close + 1 ? std::nullopt : std::optional(mark);
  }
  LogMark batches;
  if (const size_t second = ReadBracket(text, mark.end, &batches); second != mark.end) {
    mark.epoch = mark.step;
    mark.step = batches.step;
    mark.total = batches.total;
    mark.end = second;
  }
  return mark;
}

// Finds "Train: 0 [  50/1251 (  4%)]", "Test:  [49/50]": a word after a space, near the beginning.
std::optional<LogMark> PhaseIn(std::string_view text) {
  static constexpr std::string_view kPhases[] = {"train", "training",   "test", "val",
                                                 "valid", "validation", "eval", "evaluation"};
  constexpr size_t kFar = 96;
  static constexpr Bytes kFirst("tTvVeE");
  if (text.find_first_of("[(") == std::string_view::npos) return std::nullopt;
  for (size_t at = 0; at < text.size() && at <= kFar + 1; ++at) {
    if (!kFirst[text[at]] || (at > 0 && text[at - 1] != ' ')) continue;
    for (const std::string_view phase : kPhases) {
      if (!HasWordAt(text, at, phase)) continue;
      if (const std::optional<LogMark> mark = PhaseAt(text, at, phase)) return mark;
    }
  }
  return std::nullopt;
}

// Reads the completed share of "Progress:  50.0%", "Epoch: 10.1%", in thousandths. The word ends at
// `at`.
std::optional<LogMark> ShareAfter(std::string_view text, size_t begin, size_t at) {
  LogMark mark;
  mark.begin = begin;
  if (!ByteIs(text, at, ':')) return std::nullopt;
  at = PassBlanks(text, at + 1);
  double share = 0;
  const char* to = text.data() + text.size();
  const char* stop = ScanNumber(text.data() + std::min(at, text.size()), to, &share);
  mark.end = static_cast<size_t>(stop - text.data()) + 1;
  if (stop == to || *stop != '%' || !(share >= 0) || share > 100 || ByteIs(text, mark.end, '|'))
    return std::nullopt;
  mark.step = std::llround(share * 10);
  mark.weak = mark.share = true;
  return mark;
}

// Finds "Batch 50/938, Loss: 2.1", "[batch=3/100]:", "Episode 10 reward: 3", "i=10 loss=2.1",
// "minibatches 100-199", of which the last counts.
std::optional<LogMark> WordCount(std::string_view text) {
  static constexpr std::string_view kWords[] = {
      "batch",  "episode",       "timestep",        "timesteps",   "i",         "progress",
      "epoch",  "generation",    "round",           "minibatches", "num_steps", "episodes",
      "gen",    "num_timesteps", "total_timesteps", "env_step",    "env_steps", "frame",
      "frames", "comm_round",    "server_round",    "kimg",        "tick"};
  const size_t limit = std::min<size_t>(text.size(), 96);
  for (size_t at = 0; at < limit; ++at) {
    static constexpr Bytes kFirst("bBcCeEfFgGikKmMnNpPrRsStT");
    if (!kFirst[text[at]] ||
        (at > 0 && (IsPartOfName(text[at - 1]) || std::strchr("/-.'\"", text[at - 1]) != nullptr)))
      continue;
    for (const std::string_view word : kWords) {
      if ((text[at] | 0x20) != word[0] || !HasWordAt(text, at, word) || IsLimitBefore(text, at))
        continue;
      LogMark mark;
      mark.begin = at;
      size_t number = PassBlanks(text, at + word.size());
      if (word == "progress" || word == "epoch") {
        if (const std::optional<LogMark> share = ShareAfter(text, at, number)) return share;
        continue;
      }
      if (word == "i" && !ByteIs(text, at + 1, '=')) continue;
      const bool valued = ByteIs(text, number, ':') || ByteIs(text, number, '=');
      if (valued) number = PassBlanks(text, number + 1);
      mark.end = ReadRatio(text, number, &mark);
      if (mark.end == number) mark.end = ReadLogCount(text, number, &mark.step);
      const bool range = mark.end > number && word == "minibatches" && ByteIs(text, mark.end, '-');
      if (range) mark.end = ReadLogCount(text, mark.end + 1, &mark.step);
      if (mark.end == number || !EndsEpoch(text, mark.end)) continue;
      mark.batches = word == "batch" || word == "minibatches";
      // Among settings, "num_steps=1000" is the total.
      if (word == "num_steps" && text.find("oss") == text.npos) continue;
      mark.weak = word == "i" || word == "num_steps";
      const bool opened = at > 0 && text[at - 1] == '[';
      mark.alone = opened && ByteIs(text, mark.end, ']');
      if (mark.alone) ++mark.end;
      return mark;
    }
  }
  return std::nullopt;
}

// Finds WeNet's "TRAIN Batch 3/400 loss 2.5": an epoch and a batch.
std::optional<LogMark> BatchOfEpoch(std::string_view text) {
  static constexpr std::string_view kWords[] = {"TRAIN Batch ", "CV Batch "};
  for (const std::string_view word : kWords) {
    const size_t at = text.find(word);
    if (at == std::string_view::npos || at > 48) continue;
    LogMark mark;
    mark.begin = at;
    const size_t number = at + word.size();
    const size_t slash = ReadLogCount(text, number, &mark.epoch);
    if (slash == number || !ByteIs(text, slash, '/')) continue;
    mark.end = ReadLogCount(text, slash + 1, &mark.step);
    if (mark.end == slash + 1 || !ByteIs(text, mark.end, ' ')) continue;
    mark.batches = true;
    mark.evaluation = word[0] == 'C';
    return mark;
  }
  return std::nullopt;
}

// Returns the epoch, together with another count of the line within this epoch, if there is one.
std::optional<LogMark> EpochAndMore(std::string_view line, const LogMark& epoch) {
  if (std::optional<LogMark> update = UpdateIn(line)) {
    update->epoch = epoch.epoch;
    return update;
  }
  if (epoch.kind != LogMark::Kind::kEpoch) return epoch;
  // "[Train] Epoch 3 ... loss: 2.1  [640/60000]".
  if (const std::optional<LogMark> batches = TrailingCount(line)) {
    if (batches->begin >= epoch.end) {
      LogMark both = *batches;
      both.epoch = epoch.epoch;
      return both;
    }
  }
  // "100/8900 (epoch 0), train_loss = 2.5".
  if (const std::optional<LogMark> lead = LeadingCount(line)) {
    if (lead->end <= epoch.begin && lead->total > 0) {
      LogMark both = *lead;
      if (both.epoch < 0) both.epoch = epoch.epoch;
      both.end = std::max(both.end, epoch.end);
      return both;
    }
  }
  // "Batch 5 of 200 in epoch 3, loss: 2.5".
  if (const std::optional<LogMark> batch = WordCount(line.substr(0, epoch.begin))) {
    if (batch->batches && batch->total > 0) {
      LogMark both = *batch;
      both.epoch = epoch.epoch;
      both.end = std::max(both.end, epoch.end);
      return both;
    }
  }
  return epoch;
}

}  // namespace

std::optional<LogMark> FindCounter(std::string_view line, uint32_t signs) {
  if ((signs & kSignEpoch) != 0) {
    if (const std::optional<LogMark> epoch = EpochIn(line)) return EpochAndMore(line, *epoch);
  }
  if ((signs & kSignPhase) != 0) {
    if (std::optional<LogMark> mark = PhaseIn(line)) return mark;
    if (std::optional<LogMark> mark = BatchOfEpoch(line)) return mark;
  }
  if (std::optional<LogMark> mark = LeadingCount(line)) return mark;
  if (std::optional<LogMark> mark = TrailingCount(line)) return mark;
  if ((signs & (kSignCount | kSignEpoch)) != 0) {
    if (std::optional<LogMark> mark = WordCount(line)) return mark;
  }
  if ((signs & kSignAfter) != 0) {
    if (std::optional<LogMark> mark = CountAfterWord(line)) return mark;
  }
  if ((signs & kSignPhase) != 0) {
    if (std::optional<LogMark> mark = CountAfterName(line)) return mark;
  }
  return ListOfStep(line);
}

}  // namespace plumbline::audit
