#include "audit/readers/trainer_log/log_ending.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>
#include <system_error>

namespace plumbline::audit {
namespace {

constexpr size_t kLongest = 300;  // bytes of a message

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
  std::string_view text;         // without a rank in front
  std::optional<uint32_t> rank;  // "[rank3]:", as torchrun has it
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

// The number after a word: "SeqNum=12", "last enqueued NCCL work: 36".
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

// "torch.OutOfMemoryError: CUDA out of memory. ..." is its type and what it says.
bool IsException(std::string_view text) {
  const size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  if (name.empty() || name.find(' ') != std::string_view::npos) return false;
  const std::string_view last =
      name.substr(name.rfind('.') == std::string_view::npos ? 0 : name.rfind('.') + 1);
  return !last.empty() && last[0] >= 'A' && last[0] <= 'Z' &&
         (last.ends_with("Error") || last.ends_with("Exception") || last.ends_with("Interrupt") ||
          last.ends_with("Exit") || last.ends_with("Warning") || last == "StopIteration");
}

bool IsOutOfMemory(std::string_view text) {
  return Contains(text, "CUDA out of memory") || Contains(text, "OutOfMemoryError") ||
         Contains(text, "HIP out of memory") || Contains(text, "CUDA error: out of memory");
}

bool IsKill(std::string_view text) {
  const std::string_view plain = WithoutBlanks(text);
  return plain == "Killed" || plain.ends_with(" Killed") || Contains(plain, " Killed  ") ||
         Contains(plain, "oom-kill") || Contains(plain, "Signal 9 (SIGKILL)") ||
         Contains(plain, "oom_kill");
}

// A row of training: a loss with a number.
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
    if (!timeouts_.empty()) TakeTimeouts();
    if (ending_ && ending_->type == "SystemExit") return std::nullopt;
    return std::move(ending_);
  }

 private:
  void Take(const EndingLine& line) {
    if (line.rank && !in_traceback_) seen_.emplace(*line.rank, 0);
    if (IsLossRow(line.text) && !in_traceback_) {
      ending_.reset();
      timeouts_.clear();
      return;
    }
    if (TakeWatchdog(line)) return;
    if (line.text.starts_with("Traceback (most recent call last)")) {
      in_traceback_ = true;
      traceback_rank_ = line.rank;
      return;
    }
    if (in_traceback_ && line.rank == traceback_rank_ && IsException(line.text)) {
      in_traceback_ = false;
      return TakeException(line);
    }
    if (IsKill(line.text) && !ending_) {
      ending_ = LogEnding{
          LogEnding::Kind::kKilled, "SIGKILL", Short(line.text), line.rank, 0, "", {}, {}};
    }
  }

  // The first exception of those at the end: others follow it, by a handler or on another rank.
  void TakeException(const EndingLine& line) {
    if (ending_) return;
    const bool memory = IsOutOfMemory(line.text);
    ending_ = LogEnding{memory ? LogEnding::Kind::kOutOfMemory : LogEnding::Kind::kException,
                        std::string(line.text.substr(0, line.text.find(':'))),
                        Short(line.text),
                        line.rank,
                        0,
                        "",
                        {},
                        {}};
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

  // The collective that the first of them waited in; who never enqueued it did not come.
  void TakeTimeouts() {
    const Timeout& first = timeouts_.front();
    LogEnding ending{LogEnding::Kind::kTimeout,
                     "NCCL time-out",
                     first.text,
                     first.rank,
                     first.sequence,
                     first.op,
                     {},
                     {}};
    for (const Timeout& timeout : timeouts_) {
      if (timeout.sequence == first.sequence) ending.waiting.push_back(timeout.rank);
    }
    for (const auto& [rank, last] : enqueued_) {
      if (last < first.sequence) ending.missing.push_back(rank);
    }
    // A rank that printed its lines and no time-out was elsewhere.
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

  std::optional<LogEnding> ending_;
  bool in_traceback_ = false;
  std::optional<uint32_t> traceback_rank_;
  std::vector<Timeout> timeouts_;
  std::map<uint32_t, uint64_t> enqueued_;  // by rank
  std::map<uint32_t, int> seen_;           // ranks that printed anything
};

}  // namespace

std::optional<LogEnding> EndingOf(std::string_view tail) { return EndingSearch(tail).Found(); }

}  // namespace plumbline::audit
