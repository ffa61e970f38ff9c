#include "audit/render/sparkline.h"

#include <algorithm>
#include <cmath>

namespace plumbline::audit {
namespace {

constexpr size_t kSparkMargin = 13;  // like the other lines of a finding
constexpr size_t kMostColumns = 72;
constexpr size_t kLevels = 8;

double MedianOfLast(const CollectedSeries& series) {
  std::vector<double> values;
  for (const SeriesBucket& bucket : series.buckets) {
    if (bucket.finite > 0) values.push_back(bucket.last);
  }
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Returns half the distance: half values cannot overflow.
double Distance(double a, double b) { return std::fabs(a / 2 - b / 2); }

void Include(const SeriesBucket& bucket, double median, SparkColumn* column) {
  column->non_finite = column->non_finite || bucket.non_finite > 0;
  if (bucket.finite == 0) return;
  for (const double value : {bucket.min, bucket.max}) {
    if (!column->has_value || Distance(value, median) > Distance(column->value, median))
      column->value = value;
    column->has_value = true;
  }
}

size_t LevelOf(double value, const SparkColumns& all) {
  const double range = all.max / 2 - all.min / 2;
  if (!(range > 0)) return kLevels / 2;
  const double share = (value / 2 - all.min / 2) / range;
  return std::min(kLevels - 1, static_cast<size_t>(share * kLevels));
}

std::string Glyph(const SparkColumn& column, const SparkColumns& all, bool unicode) {
  static constexpr const char* kBlocks[kLevels] = {"\u2581", "\u2582", "\u2583", "\u2584",
                                                   "\u2585", "\u2586", "\u2587", "\u2588"};
  static constexpr const char* kAscii[kLevels] = {"_", ".", ":", "-", "=", "+", "*", "#"};
  if (column.non_finite) return "!";
  if (!column.has_value) return " ";
  return (unicode ? kBlocks : kAscii)[LevelOf(column.value, all)];
}

std::string SparkHead(const CollectedSeries& series, const SparkColumns& all) {
  std::string text = series.Name() + ", steps " + std::to_string(all.step_first) + "-" +
                     std::to_string(all.step_last);
  if (!all.any_finite) return text + ", no finite value";
  return text + ", min " + ShortNumber(all.min) + ", max " + ShortNumber(all.max);
}

// Returns "      ^ step 312"; if that does not fit, "step 312 ^".
std::string MarkLine(size_t column, size_t columns, int64_t step) {
  const std::string words = "step " + std::to_string(step);
  if (column > columns / 2 && column >= words.size() + 1)
    return std::string(column - words.size() - 1, ' ') + words + " ^";
  return std::string(column, ' ') + "^ " + words;
}

}  // namespace

size_t SparkColumns::ColumnOf(int64_t step) const {
  step = std::clamp((step >> bucket_bits) * (int64_t{1} << bucket_bits), step_first, step_last);
  uint64_t span = static_cast<uint64_t>(step_last) - static_cast<uint64_t>(step_first);
  uint64_t offset = static_cast<uint64_t>(step) - static_cast<uint64_t>(step_first);
  if (span >> 40 != 0) {  // the product below must not overflow; the lost bits are not visible
    span >>= 24;
    offset >>= 24;
  }
  return static_cast<size_t>(offset * columns.size() / (span + 1));
}

SparkColumns ColumnsOf(const CollectedSeries& series, size_t most_columns) {
  SparkColumns all;
  if (series.buckets.empty()) return all;
  all.bucket_bits = series.bucket_bits;
  all.step_first = series.buckets.front().step;
  all.step_last = std::max(series.buckets.back().step, series.buckets.back().last_step);
  const uint64_t span =
      static_cast<uint64_t>(all.step_last) - static_cast<uint64_t>(all.step_first);
  const uint64_t places = (span >> series.bucket_bits) + 1;
  all.columns.resize(static_cast<size_t>(std::min<uint64_t>(places, most_columns)));
  const double median = MedianOfLast(series);
  for (const SeriesBucket& bucket : series.buckets) {
    Include(bucket, median, &all.columns[all.ColumnOf(bucket.step)]);
    if (bucket.finite == 0) continue;
    all.min = all.any_finite ? std::min(all.min, bucket.min) : bucket.min;
    all.max = all.any_finite ? std::max(all.max, bucket.max) : bucket.max;
    all.any_finite = true;
  }
  return all;
}

std::string SparklineText(const CollectedSeries& series, int64_t onset, const TextStyle& style) {
  const auto width = static_cast<size_t>(std::max(style.width, 40)) - kSparkMargin;
  const SparkColumns all = ColumnsOf(series, std::min(kMostColumns, width));
  if (all.columns.empty()) return "";
  const std::string margin(kSparkMargin, ' ');
  std::string out;
  std::string label = Inked(style, Ink::kDim, "series     ");
  for (const std::string& line : Wrap(Printable(SparkHead(series, all)), width)) {
    out += (out.empty() ? "  " + label : margin) + line + "\n";
  }
  const size_t marked = all.ColumnOf(onset);
  out += margin;
  for (size_t i = 0; i < all.columns.size(); ++i) {
    const std::string glyph = Glyph(all.columns[i], all, style.unicode);
    out += i == marked ? Inked(style, Ink::kRed, glyph) : glyph;
  }
  return out + "\n" + margin +
         Inked(style, Ink::kDim, MarkLine(marked, all.columns.size(), onset)) + "\n";
}

}  // namespace plumbline::audit
