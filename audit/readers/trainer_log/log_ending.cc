#include "audit/readers/trainer_log/log_ending.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>
#include <system_error>
#include <utility>

#include "audit/readers/trainer_log/ending_signs.h"

namespace plumbline::audit {
namespace {

constexpr size_t kLongest = 300;  // limit of the bytes of a message

bool Contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

std::string_view WithoutBlanks(std::string_view text) {
  const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

template <typename Number>
bool Whole(std::string_view text, Number* number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return error == std::errc() && end == text.data() + text.size();
}

struct EndingLine {
  std::string_view text;         // the line without a leading rank
  std::optional<uint32_t> rank;  // "[rank3]:", as printed by torchrun
};

EndingLine LineOf(std::string_view text) {
  EndingLine line{text, std::nullopt};
  for (const std::string_view mark : {"[rank", "[default"}) {
    if (!text.starts_with(mark)) continue;
    const size_t end = text.find(']');
    uint32_t rank = 0;
    if (end == std::string_view::npos || !Whole(text.substr(mark.size(), end - mark.size()), &rank))
      continue;
    line.rank = rank;
    line.text = text.substr(end + 1);
    if (line.text.starts_with(":")) line.text.remove_prefix(1);
    if (line.text.starts_with(" ")) line.text.remove_prefix(1);
  }
  return line;
}

std::string Short(std::string_view text) {
  text = WithoutBlanks(text);
  if (text.size() <= kLongest) return std::string(text);
  size_t end = kLongest;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return std::string(text.substr(0, end)) + "...";
}

// Returns the number after a word: "SeqNum=12", "last enqueued NCCL work: 36".
std::optional<uint64_t> NumberAfter(std::string_view text, std::string_view word) {
  size_t at = text.find(word);
  if (at == std::string_view::npos) return std::nullopt;
  at += word.size();
  while (at < text.size() && (text[at] == ' ' || text[at] == ':' || text[at] == '=')) ++at;
  size_t end = at;
  while (end < text.size() && std::isdigit(static_cast<unsigned char>(text[end])) != 0) ++end;
  uint64_t value = 0;
  if (end == at || !Whole(text.substr(at, end - at), &value)) return std::nullopt;
  return value;
}

// True for a row of training: a loss with a number.
bool IsLossRow(std::string_view text) {
  const size_t at = text.find("loss");
  if (at == std::string_view::npos) return false;
  const std::string_view rest = text.substr(at, 40);
  return std::any_of(rest.begin(), rest.end(), [](char c) { return c >= '0' && c <= '9'; });
}

class EndingSearch {
 public:
  explicit EndingSearch(std::string_view tail) {
    while (!tail.empty()) {
      const size_t end = std::min(tail.find('\n'), tail.size());
      std::string_view text = tail.substr(0, end);
      tail.remove_prefix(std::min(end + 1, tail.size()));
      while (text.ends_with('\r') || text.ends_with(' ')) text.remove_suffix(1);
      Take(LineOf(text));
    }
  }

  std::optional<LogEnding> Found() {
    if (bare_ && lines_ - bare_line_ <= kNearEnd && (!ending_ || ending_->by_launcher))
      ending_ = std::move(bare_);
    if (in_traceback_ && frames_ > 0 && !ignored_ && (!ending_ || ending_->by_launcher))
      ending_ = EndingBy(LogEnding::Kind::kException, "", "a traceback, which the log cuts off",
                         traceback_rank_);
    if (!timeouts_.empty()) TakeTimeouts();
    if (root_) TakeRoot();
    if (ending_ && ending_->type == "SystemExit") return std::nullopt;
    return std::move(ending_);
  }

 private:
  static constexpr size_t kNearEnd = 5;  // number of non-blank lines

  static LogEnding EndingBy(LogEnding::Kind kind, std::string_view type, std::string_view message,
                            std::optional<uint32_t> rank) {
    LogEnding ending;
    ending.kind = kind;
    ending.type = type;
    ending.message = Short(message);
    ending.rank = rank;
    return ending;
  }

  void Take(const EndingLine& line) {
    lines_ += line.text.empty() ? 0 : 1;
    if (line.rank && !in_traceback_) seen_.emplace(*line.rank, 0);
    // Frames of a traceback are indented.
    const bool frame =
        in_traceback_ && (stamp_ > 0 || line.text.starts_with(' ') || IsException(line.text));
    if (!frame && !ending_ && StopsForLoss(line.text)) {
      ending_ = EndingBy(LogEnding::Kind::kNotFinite, "loss", line.text, line.rank);
      return;
    }
    if (!frame && !ending_ && ReportsNotFinite(line.text)) {
      bare_ = EndingBy(LogEnding::Kind::kNotFinite, "report", line.text, line.rank);
      bare_line_ = lines_;
      return;
    }
    const bool success = !frame && StatesSuccess(line.text);
    if (success || (!frame && IsLossRow(line.text) && !IsFatalException(line.text))) {
      Forget();
      finished_ = success;
      return;
    }
    if (TakeWatchdog(line) || TakeTraceback(line) || TakeReport(line.text)) return;
    if (ending_ && !ending_->by_launcher) return TakeMore(line.text);
    if (const std::optional<EndingSign> sign = SignIn(line.text)) {
      if (ending_ && sign->by_launcher) return;
      ending_ = EndingBy(sign->kind, sign->type, line.text, sign->rank ? sign->rank : line.rank);
      ending_->by_launcher = sign->by_launcher;
    } else if (GoesOn(line.text)) {
      bare_.reset();
    } else if (IsFatalException(line.text) && !bare_) {
      bare_ = Exception(line.text, line.rank);
      bare_line_ = lines_;
    }
  }

  // Drops the ending that was found, because training continued or ended well.
  void Forget() {
    in_traceback_ = false;
    ending_.reset();
    bare_.reset();
    root_.reset();
    timeouts_.clear();
    ignored_ = chained_ = false;
  }

  // Returns true if the line is part of a traceback. A logger may print a time before each of its
  // lines.
  bool TakeTraceback(const EndingLine& line) {
    constexpr std::string_view kBegin = "Traceback (most recent call last)";
    constexpr size_t kMostStamp = 120;
    // A helper thread may fail while the interpreter exits.
    if (line.text.starts_with("Exception ignored in") ||
        (finished_ && line.text.starts_with("Exception in thread"))) {
      ignored_ = true;
      return true;
    }
    if (line.text.starts_with("During handling of the above exception") ||
        line.text.starts_with("The above exception was the direct cause")) {
      chained_ = ending_.has_value();
      return true;
    }
    if (const size_t at = line.text.find(kBegin); at <= kMostStamp) {
      in_traceback_ = true;
      stamp_ = at;
      frames_ = 0;
      traceback_rank_ = line.rank;
      return true;
    }
    if (!in_traceback_ || line.rank != traceback_rank_) return false;
    std::string_view text = line.text;
    if (!IsException(text) && text.size() > stamp_) text.remove_prefix(stamp_);
    if (!IsException(text)) {
      frames_ += text.empty() ? 0 : 1;
      return false;
    }
    in_traceback_ = false;
    if (!std::exchange(ignored_, false)) TakeException(text, line.rank);
    return true;
  }

  static LogEnding Exception(std::string_view text, std::optional<uint32_t> rank) {
    const LogEnding::Kind kind = IsOutOfHostMemory(text) ? LogEnding::Kind::kKilled
                                 : IsOutOfMemory(text)   ? LogEnding::Kind::kOutOfMemory
                                                         : LogEnding::Kind::kException;
    return EndingBy(kind, text.substr(0, text.find(':')), text, rank);
  }

  // Keeps the first of the final exceptions, because other ranks fail as a consequence of it. If an
  // exception was raised while another was handled, it replaces the other. A launcher's exception
  // only reports another one.
  void TakeException(std::string_view text, std::optional<uint32_t> rank) {
    LogEnding found = Exception(text, rank);
    found.by_launcher = found.type.ends_with("ChildFailedError");
    const bool chained = std::exchange(chained_, false);
    if (ending_ && !chained && !ending_->by_launcher) return;
    if (ending_ && !chained && found.by_launcher) return;
    if (ending_ && chained && !found.by_launcher)
      found.message = Short(found.message + " (raised while " + ending_->message + " was handled)");
    ending_ = std::move(found);
  }

  // Adds information from lines after the end.
  void TakeMore(std::string_view text) {
    const std::string_view plain = WithoutBlanks(text);
    if (ending_->kind != LogEnding::Kind::kCrash) return;
    if (plain.starts_with("what():"))
      ending_->message = Short(ending_->message + " " + std::string(plain));
    if (plain == "out of memory" || IsOutOfMemory(plain))
      ending_->kind = LogEnding::Kind::kOutOfMemory;
  }

  // Reads torchrun's "Root Cause (first observed failure):" and, below it, rank, exitcode,
  // traceback.
  bool TakeReport(std::string_view text) {
    if (Contains(text, "Root Cause (first observed failure)")) {
      root_ = Root{};
      return true;
    }
    if (!root_) return false;
    const std::string_view plain = WithoutBlanks(text);
    if (plain.starts_with("rank ")) root_->rank = NumberAfter(plain, "rank");
    if (plain.starts_with("exitcode")) root_->status = Short(plain);
    if (plain.starts_with("traceback")) root_->signal = NumberAfter(plain, "Signal");
    return plain.starts_with("rank ") || plain.starts_with("exitcode") ||
           plain.starts_with("traceback");
  }

  // Uses the report if only the launcher states how the run ended.
  void TakeRoot() {
    if (ending_ && !ending_->by_launcher) {
      if (!ending_->rank && root_->rank) ending_->rank = static_cast<uint32_t>(*root_->rank);
      return;
    }
    LogEnding ending = EndingBy(LogEnding::Kind::kException, "exit status", root_->status, {});
    if (root_->signal) {
      const auto sign = SignIn("exited on signal " + std::to_string(*root_->signal));
      if (sign) ending.kind = sign->kind;
      ending.type = sign ? std::string(sign->type) : "a signal";
      ending.message = "signal " + std::to_string(*root_->signal) + " (" + root_->status + ")";
    }
    if (root_->rank) ending.rank = static_cast<uint32_t>(*root_->rank);
    ending_ = std::move(ending);
  }

  struct Timeout {
    uint64_t sequence = 0;
    std::string op, text;
    uint32_t rank = 0;
  };

  bool TakeWatchdog(const EndingLine& line) {
    const std::optional<uint64_t> named = NumberAfter(line.text, "[Rank ");
    const uint32_t rank = line.rank.value_or(static_cast<uint32_t>(named.value_or(0)));
    if (const auto last = NumberAfter(line.text, "last enqueued NCCL work"))
      enqueued_[rank] = *last;
    const auto sequence = NumberAfter(line.text, "SeqNum");
    if (!sequence || !Contains(line.text, "imeout"))
      return enqueued_.contains(rank) && sequence.has_value();
    Timeout timeout{*sequence, "", Short(line.text), rank};
    if (const size_t at = line.text.find("OpType="); at != std::string_view::npos) {
      const std::string_view rest = line.text.substr(at + 7);
      timeout.op = std::string(rest.substr(0, rest.find_first_of(",)")));
    }
    timeouts_.push_back(std::move(timeout));
    return true;
  }

  // Reports the collective in which the first ranks waited. A rank that never enqueued this
  // collective is missing.
  void TakeTimeouts() {
    const Timeout& first = timeouts_.front();
    LogEnding ending = EndingBy(LogEnding::Kind::kTimeout, "NCCL time-out", first.text, first.rank);
    ending.sequence = first.sequence;
    ending.op = first.op;
    for (const Timeout& timeout : timeouts_) {
      if (timeout.sequence == first.sequence) ending.waiting.push_back(timeout.rank);
    }
    for (const auto& [rank, last] : enqueued_) {
      if (last < first.sequence) ending.missing.push_back(rank);
    }
    // If a rank printed lines but no time-out, it is also missing.
    for (const auto& [rank, nothing] : seen_) {
      if (enqueued_.contains(rank) || Waits(rank) || seen_.size() < 2) continue;
      ending.missing.push_back(rank);
    }
    for (std::vector<uint32_t>* ranks : {&ending.waiting, &ending.missing}) {
      std::sort(ranks->begin(), ranks->end());
      ranks->erase(std::unique(ranks->begin(), ranks->end()), ranks->end());
    }
    std::erase_if(ending.waiting, [&](uint32_t rank) {
      return std::binary_search(ending.missing.begin(), ending.missing.end(), rank);
    });
    ending_ = std::move(ending);
  }
  bool Waits(uint32_t rank) const {
    return std::any_of(timeouts_.begin(), timeouts_.end(),
                       [rank](const Timeout& timeout) { return timeout.rank == rank; });
  }

  struct Root {  // the root cause in torchrun's report
    std::optional<uint64_t> rank, signal;
    std::string status;
  };

  std::optional<LogEnding> ending_;
  std::optional<LogEnding> bare_;  // a line of an exception without a traceback
  std::optional<Root> root_;
  size_t lines_ = 0, bare_line_ = 0;  // number of non-blank lines
  bool in_traceback_ = false;
  bool ignored_ = false;   // Python prints this exception but ignores it
  bool finished_ = false;  // the newest line about the end states success
  bool chained_ = false;   // the next exception was raised while `ending_` was handled
  size_t stamp_ = 0;       // bytes before the traceback on its line
  size_t frames_ = 0;      // lines of the traceback
  std::optional<uint32_t> traceback_rank_;
  std::vector<Timeout> timeouts_;
  std::map<uint32_t, uint64_t> enqueued_;  // rank -> last enqueued work
  std::map<uint32_t, int> seen_;           // ranks that printed anything
};

}  // namespace

std::optional<LogEnding> EndingOf(std::string_view tail) { return EndingSearch(tail).Found(); }

}  // namespace plumbline::audit
