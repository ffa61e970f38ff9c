#include "rules/engine/process_ends.h"

#include <algorithm>
#include <cctype>
#include <string_view>
#include <tuple>

#include "analysis/frame/frame.h"
#include "base/printable.h"

namespace plumbline::rules {
namespace {

constexpr size_t kShort = 128, kMiddle = 256, kLong = 512;  // bytes
constexpr int kMostLast = 8;
constexpr int64_t kLatest = int64_t{1} << 62;  // ns: leaves a margin for comparisons of times

// Truncates `text` to at most `most` bytes, at a UTF-8 character boundary.
std::string Cut(const std::string& text, size_t most) {
  std::string shown = Printable(std::string_view(text).substr(0, most));
  if (shown.size() > most) {
    size_t end = most;
    while (end > 0 && (static_cast<unsigned char>(shown[end]) & 0xC0) == 0x80) --end;
    shown.resize(end);
  }
  return shown;
}

// Returns a bounded copy, because a trainer may send any amount.
v1::Ending Trimmed(const v1::Ending& ending) {
  v1::Ending kept;
  kept.set_how(ending.how());
  kept.set_type(Cut(ending.type(), kShort));
  kept.set_text(Cut(ending.text(), kLong));
  kept.set_where(Cut(ending.where(), kMiddle));
  kept.set_code(ending.code());
  kept.set_unix_ns(std::clamp<int64_t>(ending.unix_ns(), 0, kLatest));
  kept.set_thread(Cut(ending.thread(), kMiddle));
  for (int i = 0; i < std::min(ending.last_size(), kMostLast); ++i) {
    v1::Ending::Last& last = *kept.add_last();
    last.set_series(Cut(ending.last(i).series(), kShort));
    last.set_step(ending.last(i).step());
    last.set_value(ending.last(i).value());
  }
  return kept;
}

bool Bad(const v1::Ending& ending) {
  return ending.how() != v1::Ending::HOW_UNSPECIFIED || !ending.thread().empty();
}

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

std::string NameOf(const v1::Site& site) {
  return Cut(site.layer().empty() ? site.op() : site.layer() + "/" + site.op(), kShort);
}

}  // namespace

bool IsLossName(const v1::Site& site) {
  if (site.op().find("oss") == std::string::npos) return false;
  const std::string name = Lower(site.op());
  if (name.find("loss") == std::string::npos) return false;
  for (const char* other : {"aux", "balanc", "z_loss", "z-loss", "zloss", "scale", "router"}) {
    if (name.find(other) != std::string::npos) return false;
  }
  return true;
}

uint32_t ShownColumn(const std::vector<v1::Site>& sites) {
  for (uint32_t column = 0; column < sites.size(); ++column) {
    if (IsLossName(sites[column])) return column;
  }
  return 0;
}

void ProcessEnds::Hear(const v1::Source& source) {
  Rank& rank = ranks_[source.rank()];
  if (rank.host.empty() && !source.host().empty()) rank.host = Cut(source.host(), kShort);
  if (source.pid() != 0 && rank.pid != source.pid()) {
    if (rank.pid != 0) Renew(rank);
    rank.pid = source.pid();
  }
  if (rank.way == EndKind::kGone || rank.way == EndKind::kUnreachable) rank.way = EndKind::kOpen;
}

// Resets the rank for a new process: the ending of the earlier process is no longer reported.
void ProcessEnds::Renew(Rank& rank) {
  if (rank.whole) --whole_;
  rank.whole = rank.followed = false;
  rank.way = EndKind::kOpen;
  rank.stated.Clear();
}

void ProcessEnds::Value(uint32_t number, int64_t step, const v1::Site& site, double value) {
  Rank& rank = ranks_[number];
  if (step < rank.value_step) return;
  // If a rank reports several series, its loss is kept.
  const bool known = rank.name < names_.size();
  if (!known || names_[rank.name] != site.op() || !site.layer().empty()) {
    const std::string name = NameOf(site);
    if (known && names_[rank.name] != name && !IsLossName(site)) return;
    const auto at = std::find(names_.begin(), names_.end(), name);
    rank.name = static_cast<uint32_t>(at - names_.begin());
    if (at == names_.end()) {
      if (names_.size() == kMostNames) return;
      names_.push_back(name);
    }
  }
  rank.value_step = step;
  rank.value = value;
}

void ProcessEnds::Stated(const v1::Source& source, const v1::Progress& progress) {
  Rank& rank = ranks_[source.rank()];
  if (rank.way == EndKind::kStated) return;  // its first ending counts
  rank.way = Bad(progress.ending()) ? EndKind::kStated : EndKind::kWell;
  if (rank.way == EndKind::kWell) return;
  rank.stated = Trimmed(progress.ending());
  rank.followed = ReadsLikeFollower(rank.stated);
  rank.whole = true;
  if (++whole_ > kWhole) Thin();
}

// Drops the full ending of one rank: first one that followed others, if there is any, else the
// latest. The result does not depend on the order of arrival.
void ProcessEnds::Thin() {
  Rank* worst = nullptr;
  std::tuple<bool, int64_t, uint32_t> least;
  for (auto& [number, rank] : ranks_) {
    if (!rank.whole) continue;
    const std::tuple<bool, int64_t, uint32_t> key{rank.followed, rank.stated.unix_ns(), number};
    if (worst != nullptr && key < least) continue;
    worst = &rank;
    least = key;
  }
  v1::Ending thin;
  thin.set_how(worst->stated.how());
  thin.set_code(worst->stated.code());
  thin.set_unix_ns(worst->stated.unix_ns());
  worst->stated = thin;
  worst->whole = false;
  --whole_;
}

void ProcessEnds::Gone(const v1::Source& source, EndKind way) {
  if (way == EndKind::kOpen) return;
  Rank& rank = ranks_[source.rank()];
  if (rank.host.empty()) rank.host = Cut(source.host(), kShort);
  if (rank.way == EndKind::kWell || rank.way == EndKind::kStated) return;
  rank.way = way;
}

bool ProcessEnds::any_process() const {
  return std::any_of(ranks_.begin(), ranks_.end(),
                     [](const auto& of) { return of.second.pid != 0; });
}

void ProcessEnds::List(v1::Role role, std::vector<ProcessEnd>* out) const {
  for (const auto& [number, rank] : ranks_) {
    if (rank.pid == 0 && rank.way != EndKind::kStated) continue;
    ProcessEnd& end = out->emplace_back();
    end.role = role;
    end.rank = number;
    end.host = rank.host;
    end.way = rank.way;
    end.stated = rank.stated;
    end.followed = rank.followed;
    if (rank.name < names_.size()) {
      end.series = names_[rank.name];
      end.value_step = rank.value_step;
      end.value = rank.value;
    }
  }
}

void ProcessEnds::Rank::Persist(Archive& a) {
  a(host, pid, way, stated, followed, whole, name, value_step, value);
}

void ProcessEnds::Persist(Archive& a) {
  a.Version(1);
  a(ranks_, names_);
  if (!a.reading()) return;
  whole_ = 0;
  for (const auto& [number, rank] : ranks_) whole_ += rank.whole ? 1 : 0;
}

}  // namespace plumbline::rules
