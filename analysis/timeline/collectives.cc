#include "analysis/timeline/collectives.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"

namespace plumbline::timeline {
namespace {

constexpr uint32_t kMostMembers = 1u << 17;
constexpr uint64_t kMostMoved = uint64_t{1} << 50;

// Returns the name in lower case without word separators.
std::string Joined(std::string_view name) {
  std::string out;
  for (const char c : name.substr(0, 128)) {
    if (c != '_' && c != '-' && c != ' ')
      out.push_back(static_cast<char>(std::tolower(static_cast<unsigned char>(c))));
  }
  return out;
}

// Parses "0+8*4" into first, stride, N.
bool ReadMembers(std::string_view text, CollectiveTimes* times) {
  const auto number = [&](auto* value, char after) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
    if (error != std::errc()) return false;
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    if (after == '\0') return text.empty();
    if (text.empty() || text.front() != after) return false;
    text.remove_prefix(1);
    return true;
  };
  return number(&times->first, '+') && number(&times->stride, '*') && number(&times->ranks, '\0');
}

// Returns true if the values are possible for a collective; they may come from an untrusted source.
bool Sound(const CollectiveTimes& t) {
  return t.ranks >= 2 && t.ranks <= kMostMembers && t.bytes > 0 && t.bytes <= kMostMoved &&
         t.time_ns > 0 && t.time_ns <= static_cast<uint64_t>(kMostTime) && t.calls > 0 &&
         t.first >= -1 && t.first <= kMostMembers && t.stride >= 0 && t.stride <= kMostMembers;
}

}  // namespace

std::string_view CollectiveOf(std::string_view name) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kKinds = {{
      {"reducescatter", "reduce_scatter"},
      {"allreduce", "all_reduce"},
      {"allgather", "all_gather"},
      {"alltoall", "all_to_all"},
      {"all2all", "all_to_all"},
  }};
  const std::string joined = Joined(name);
  for (const auto& [part, kind] : kKinds) {
    if (joined.find(part) != joined.npos) return kind;
  }
  return "";
}

uint32_t BytesOfType(std::string_view dtype) {
  static constexpr std::array<std::pair<std::string_view, uint32_t>, 18> kTypes = {{
      {"float", 4},
      {"bfloat16", 2},
      {"half", 2},
      {"double", 8},
      {"byte", 1},
      {"char", 1},
      {"bool", 1},
      {"short", 2},
      {"int", 4},
      {"long", 8},
      {"float8e4m3fn", 1},
      {"float8e5m2", 1},
      {"float8e4m3fnuz", 1},
      {"float8e5m2fnuz", 1},
      {"float32", 4},
      {"float16", 2},
      {"float64", 8},
      {"int64", 8},
  }};
  const std::string joined = Joined(dtype);
  for (const auto& [name, bytes] : kTypes) {
    if (joined == name) return bytes;
  }
  return 0;
}

uint64_t WholeBytes(std::string_view op, uint64_t in, uint64_t out, uint32_t ranks,
                    uint32_t bytes_each) {
  if (in > kMostMoved || out > kMostMoved || ranks < 2 || ranks > kMostMembers) return 0;
  uint64_t elements = 0;
  // If the two sides disagree, use the larger count, which does not make a link look slow.
  if (op == "all_reduce") elements = std::max(in, out);
  if (op == "all_gather") elements = std::max(out, in * ranks);
  if (op == "reduce_scatter") elements = std::max(in, out * ranks);
  if (op == "all_to_all") elements = std::max(in, out) * ranks;
  return elements > kMostMoved / 16 ? 0 : elements * bytes_each;
}

std::vector<CollectiveTimes> CollectivesIn(const Columns& columns) {
  // Alone on the link: no other communication at the same time. Sorted by start; `until` is the
  // latest end before.
  std::vector<const GpuWork*> all;
  for (const GpuWork& work : columns.gpu) {
    if (work.communicates && work.end > work.start) all.push_back(&work);
  }
  std::map<uint16_t, std::vector<int64_t>> durations;
  int64_t until = INT64_MIN;
  for (size_t i = 0; i < all.size(); ++i) {
    const GpuWork& work = *all[i];
    const bool alone =
        until <= work.start && (i + 1 == all.size() || all[i + 1]->start >= work.end);
    until = std::max(until, work.end);
    if (alone && work.collective < columns.collectives.size())
      durations[work.collective].push_back(work.end - work.start);
  }
  // For each kind, group and size, take the fastest tenth.
  std::vector<CollectiveTimes> out;
  for (auto& [index, times] : durations) {
    CollectiveTimes one = columns.collectives[index];
    if (one.bytes < kManyBytes) continue;
    const auto tenth = times.begin() + static_cast<ptrdiff_t>(times.size() / 10);
    std::nth_element(times.begin(), tenth, times.end());
    one.calls = times.size();
    one.time_ns = static_cast<uint64_t>(*tenth);
    out.push_back(std::move(one));
  }
  std::sort(out.begin(), out.end(), [](const CollectiveTimes& a, const CollectiveTimes& b) {
    return std::tie(a.op, a.ranks, a.first, a.stride, a.bytes) <
           std::tie(b.op, b.ranks, b.first, b.stride, b.bytes);
  });
  return out;
}

double BusBandwidth(const CollectiveTimes& t) {
  if (!Sound(t)) return 0;
  const auto n = static_cast<double>(t.ranks);
  double bytes = static_cast<double>(t.bytes) * (n - 1) / n;
  if (t.op == "all_reduce") bytes *= 2;
  if (t.op == "all_to_all") bytes /= n;
  return bytes / (1e-9 * static_cast<double>(t.time_ns));
}

void PutCollective(const CollectiveTimes& t, v1::Evidence* evidence) {
  evidence->mutable_site()->set_layer(
      absl::StrCat(std::string(kCollectivesLayer), t.ranks, " ranks"));
  evidence->mutable_site()->set_op(t.op);
  evidence->set_sample_size(t.calls);
  v1::Span& span = *evidence->mutable_span();
  span.set_kind(v1::Span::KIND_COLLECTIVE);
  span.set_duration_ns(t.time_ns);
  span.set_name(absl::StrCat(t.bytes, " bytes among ", t.first, "+", t.stride, "*", t.ranks));
}

bool ReadCollective(const v1::Evidence& evidence, CollectiveTimes* times) {
  if (!evidence.has_span() || evidence.span().kind() != v1::Span::KIND_COLLECTIVE) return false;
  // Parses "134217728 bytes among 0+1*8": B, then the members.
  constexpr std::string_view kAmong = " bytes among ";
  std::string_view name = evidence.span().name();
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), times->bytes);
  if (error != std::errc()) return false;
  name.remove_prefix(static_cast<size_t>(end - name.data()));
  if (!name.starts_with(kAmong)) return false;
  name.remove_prefix(kAmong.size());
  times->op = evidence.site().op();
  times->calls = evidence.sample_size();
  times->time_ns = evidence.span().duration_ns();
  return ReadMembers(name, times) && Sound(*times);
}

}  // namespace plumbline::timeline
