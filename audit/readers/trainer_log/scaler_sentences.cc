#include "audit/readers/trainer_log/scaler_sentences.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <system_error>

namespace plumbline::audit {
namespace {

std::optional<double> ScaleAfter(std::string_view line, std::string_view words) {
  size_t at = line.find(words);
  if (at == std::string_view::npos) return std::nullopt;
  at += words.size();
  while (at < line.size() && (line[at] == ' ' || line[at] == ':' || line[at] == '=')) ++at;
  double value = 0;
  const auto [end, error] = std::from_chars(line.data() + at, line.data() + line.size(), value);
  if (error != std::errc() || !(value > 0) || !std::isfinite(value)) return std::nullopt;
  return value;
}

}  // namespace

void ScalerSentences::Take(std::string_view line, uint64_t at) {
  if (line.find("verflow") == std::string_view::npos &&
      line.find("VERFLOW") == std::string_view::npos)
    return;
  std::optional<double> scale;
  for (const std::string_view words :
       {"reducing to", "reducing loss scale to", "setting loss scale to", "loss scale to"}) {
    if (!scale) scale = ScaleAfter(line, words);
  }
  if (!scale) return;
  ++events_;
  last_at_ = at;
  // If the scale is 1, it cannot fall further, so a step that is skipped then counts as a fall,
  // too.
  const bool at_floor = *scale <= 1 && last_ <= 1;
  falls_ = *scale <= 0.75 * last_ || at_floor || std::isnan(last_) ? falls_ + 1 : 0;
  if (std::isnan(first_)) first_ = ScaleAfter(line, "Attempted loss scale").value_or(*scale);
  last_ = *scale;
  lowest_ = std::min(lowest_, *scale);
}

}  // namespace plumbline::audit
