#include "analysis/flight/handed.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

namespace plumbline::flight {
namespace {

constexpr uint64_t kMostElements = uint64_t{1} << 63;

// Returns a · b, or kMostElements if that is less.
uint64_t Times(uint64_t a, uint64_t b) {
  if (b != 0 && a > kMostElements / b) return kMostElements;
  return a * b;
}

// Returns the count of one shape, "[1024,8" without its last bracket. If an extent is not a number,
// returns nullopt.
std::optional<uint64_t> CountOf(std::string_view shape) {
  uint64_t count = 1;
  shape.remove_prefix(1);
  for (size_t at = 0; at < shape.size();) {
    uint64_t extent = 0;
    const auto [end, error] =
        std::from_chars(shape.data() + at, shape.data() + shape.size(), extent);
    if (error != std::errc()) return std::nullopt;
    count = Times(count, extent);
    at = static_cast<size_t>(end - shape.data());
    if (at < shape.size() && shape[at] == ',') ++at;
    while (at < shape.size() && shape[at] == ' ') ++at;
  }
  if (count >= kMostElements) return std::nullopt;
  return count;
}

bool OneOrOneEach(std::string_view kind, bool outputs) {
  return (kind == "all_gather" && outputs) || (kind == "reduce_scatter" && !outputs);
}

// Returns the number of tensors that every operation lists. If no text was cut, returns nullopt.
std::optional<size_t> ListedByAll(const std::vector<std::optional<Counts>>& all) {
  std::optional<size_t> least;
  bool cut = false;
  for (const auto& counts : all) {
    if (!counts) continue;
    cut |= !counts->whole;
    least = std::min(least.value_or(SIZE_MAX), counts->tensors.size());
  }
  return cut ? least : std::nullopt;
}

}  // namespace

bool MovesOnly(std::string_view kind) {
  return kind == "all_gather" || kind == "broadcast" || kind == "all_to_all" || kind == "gather" ||
         kind == "scatter";
}

uint32_t WidthOf(std::string_view dtype) {
  static constexpr std::array<std::pair<std::string_view, uint32_t>, 16> kWidths = {
      {{"Byte", 1},
       {"Char", 1},
       {"Bool", 1},
       {"Float8_e4m3fn", 1},
       {"Float8_e5m2", 1},
       {"Float8_e4m3fnuz", 1},
       {"Float8_e5m2fnuz", 1},
       {"Half", 2},
       {"BFloat16", 2},
       {"Short", 2},
       {"Int", 4},
       {"Float", 4},
       {"Long", 8},
       {"Double", 8},
       {"ComplexFloat", 8},
       {"ComplexDouble", 16}}};
  for (const auto& [name, width] : kWidths) {
    if (name == dtype) return width;
  }
  return 0;
}

std::optional<Counts> CountsIn(std::string_view shapes) {
  Counts out;
  for (size_t from = 0; from < shapes.size();) {
    const size_t begin = shapes.find('[', from), end = shapes.find(']', from);
    if (begin == shapes.npos) break;
    if (end == shapes.npos) {
      out.whole = false;
      break;
    }
    const std::optional<uint64_t> count = CountOf(shapes.substr(begin, end - begin));
    if (!count) return std::nullopt;
    out.tensors.push_back(*count);
    from = end + 1;
  }
  return out;
}

std::vector<std::string> Comparable(const std::vector<const Op*>& ops, bool outputs,
                                    bool in_bytes) {
  std::vector<std::optional<Counts>> all;
  for (const Op* op : ops) {
    const std::string& shapes = outputs ? op->output_shape : op->input_shape;
    all.push_back(shapes.empty() ? std::nullopt : CountsIn(shapes));
  }
  // If texts were cut, compare only what all of them list.
  const std::optional<size_t> most = ListedByAll(all);
  std::vector<std::string> out(ops.size());
  for (size_t i = 0; i < ops.size(); ++i) {
    const bool sum = OneOrOneEach(ops[i]->kind, outputs);
    if (!all[i] || (sum && most)) continue;
    std::vector<uint64_t> counts = all[i]->tensors;
    if (most) counts.resize(std::min(counts.size(), *most));
    if (sum) {
      uint64_t total = 0;
      for (const uint64_t count : counts) total = std::min(total + count, kMostElements);
      counts = {total};
    }
    const uint64_t width = in_bytes ? WidthOf(ops[i]->dtype) : 1;
    for (const uint64_t count : counts)
      out[i] += (out[i].empty() ? "" : ",") + std::to_string(Times(count, width));
  }
  return out;
}

}  // namespace plumbline::flight
