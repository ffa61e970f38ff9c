#include "audit/readers/trainer_log/row_steps.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "audit/readers/log_text/log_bytes.h"
#include "audit/readers/log_text/log_words.h"
#include "audit/readers/scalars/number_text.h"

namespace plumbline::audit {
namespace {

constexpr double kMostSteps = 1e12;

struct Printed {
  double value = 0;
  double grain = 0;  // value of one unit of its last digit
};

// Returns the number after "'name': " in a printed dictionary. It may be in quotes.
std::optional<Printed> MemberOf(std::string_view line, std::string_view name) {
  for (const char quote : {'\'', '"'}) {
    const std::string key = std::string(1, quote) + std::string(name) + quote + ": ";
    const size_t at = line.find(key);
    if (at == std::string_view::npos) continue;
    const char* begin = line.data() + at + key.size();
    const char* to = line.data() + line.size();
    if (begin != to && (*begin == '\'' || *begin == '"')) ++begin;
    Printed printed;
    const char* end = ScanNumber(begin, to, &printed.value);
    if (end == begin || !std::isfinite(printed.value)) return std::nullopt;
    const std::string_view text(begin, static_cast<size_t>(end - begin));
    const size_t point = text.find('.');
    const bool power = text.find_first_of("eE") != std::string_view::npos;
    const size_t digits = point == std::string_view::npos ? 0 : text.size() - point - 1;
    printed.grain = power ? 0 : std::pow(10.0, -static_cast<double>(digits));
    return printed;
  }
  return std::nullopt;
}

// Returns the whole number after "words ... = " in the line that has these words; 0 if there is
// none.
double CountAfter(std::string_view text, std::string_view words) {
  const size_t at = text.find(words);
  if (at == std::string_view::npos) return 0;
  std::string_view line = text.substr(at, 240);
  line = line.substr(0, line.find_first_of("\r\n"));
  const size_t sign = line.find('=');
  if (sign == std::string_view::npos) return 0;
  size_t begin = sign + 1;
  while (begin < line.size() && IsSpaceByte(line[begin])) ++begin;
  int64_t count = 0;
  return ReadLogCount(line, begin, &count) > begin ? static_cast<double>(count) : 0;
}

// Epochs of the rows that have a training loss, in order.
struct Rows {
  std::vector<double> epochs;
  double grain = 1;  // smallest unit of all rows, because trailing zeros are not printed
};

Rows RowsIn(std::string_view text) {
  constexpr size_t kMostRows = 4096;
  Rows rows;
  while (!text.empty() && rows.epochs.size() < kMostRows) {
    const size_t end = text.find_first_of("\r\n");
    if (end == std::string_view::npos) break;  // the line may be truncated
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    if (line.find("loss'") == std::string_view::npos &&
        line.find("loss\"") == std::string_view::npos)
      continue;
    const std::optional<Printed> epoch = MemberOf(line, "epoch");
    const bool training = line.find("'loss'") != std::string_view::npos ||
                          line.find("\"loss\"") != std::string_view::npos;
    if (!epoch || !training) continue;
    if (!rows.epochs.empty() && epoch->value < rows.epochs.back()) break;  // the run was resumed
    rows.epochs.push_back(epoch->value);
    rows.grain = std::min(rows.grain, epoch->grain);
  }
  return rows;
}

struct PerEpoch {
  double steps = 0;
  double error = 0;  // relative error
};

// Reads "***** Running training *****" and the totals below it.
std::optional<PerEpoch> PerEpochOfHead(std::string_view head) {
  const double total = CountAfter(head, "Total optimization steps");
  const double epochs = CountAfter(head, "Num Epochs");
  const double examples = CountAfter(head, "Num examples");
  const double batch = CountAfter(head, "Total train batch size");
  const double accumulation = CountAfter(head, "Gradient Accumulation steps");
  if (!(total > 0) || !(epochs > 0)) return std::nullopt;
  PerEpoch per{total / epochs, 0};
  // If max_steps is set, the number of epochs is rounded up.
  if (examples > 0 && batch > 0 && std::fabs(per.steps - examples / batch) > 1.5)
    per = {std::ceil(examples / batch), 1.5 / std::max(1.0, examples / batch)};
  // The last micro-batches of an epoch may be a separate step, or may be dropped.
  if (accumulation > 1) per.error = std::max(per.error, 1.5 / per.steps);
  return per;
}

// Reads "{'train_runtime': 4500.2, ..., 'train_steps_per_second': 0.444, ..., 'epoch': 2.0}".
std::optional<PerEpoch> PerEpochOfTail(std::string_view tail) {
  const size_t at = tail.rfind("train_steps_per_second");
  if (at == std::string_view::npos) return std::nullopt;
  const size_t begin = tail.find_last_of("\r\n", at) + 1;  // 0 if there is none
  const std::string_view line = tail.substr(begin, tail.find_first_of("\r\n", at) - begin);
  const auto seconds = MemberOf(line, "train_runtime"),
             rate = MemberOf(line, "train_steps_per_second"), epoch = MemberOf(line, "epoch");
  if (!seconds || !rate || !epoch || !(seconds->value > 0) || !(rate->value > 0) ||
      !(epoch->value > 0))
    return std::nullopt;
  const auto relative = [](const Printed& p) { return p.grain / 2 / p.value; };
  // The number of epochs is usually whole. Then 2.0 is exact.
  const double of_epoch = epoch->value == std::round(epoch->value) ? 0 : relative(*epoch);
  return PerEpoch{seconds->value * rate->value / epoch->value,
                  relative(*seconds) + relative(*rate) + of_epoch};
}

// Rates a stride: a higher value is more likely to be chosen by a person.
int Roundness(int64_t stride) {
  static constexpr int64_t kRound[] = {1000, 500, 250, 100, 50, 25, 20, 10, 5, 2};
  int score = 10;
  for (const int64_t round : kRound) {
    if (stride % round == 0) return score;
    --score;
  }
  return stride == 1 ? 1 : 0;
}

}  // namespace

double RowSteps::Tolerance(double epoch) const {
  return (grain_ / 2 + error_ * epoch) * per_epoch_ * (1 + 1e-9) + 0.01;
}

std::optional<RowSteps> RowSteps::Of(std::string_view head, std::string_view tail) {
  std::optional<PerEpoch> per = PerEpochOfHead(head);
  if (!per) per = PerEpochOfTail(tail);
  const Rows rows = RowsIn(head);
  if (!per || !(per->steps >= 1) || !(per->steps < kMostSteps) || rows.epochs.empty())
    return std::nullopt;
  RowSteps steps;
  steps.per_epoch_ = per->steps;
  steps.error_ = per->error;
  steps.grain_ = rows.grain;
  const auto fits = [&](int64_t stride, bool first) {
    for (size_t i = 0; i < rows.epochs.size(); ++i) {
      const int64_t row = static_cast<int64_t>(i) + (first ? 0 : 1);
      const double step = row == 0 ? 1 : static_cast<double>(row * stride);
      const double found = rows.epochs[i] * steps.per_epoch_;
      if (std::fabs(step - found) > steps.Tolerance(rows.epochs[i])) return false;
    }
    return true;
  };
  int best = -1;
  bool unique = false;
  for (const bool first : {false, true}) {
    const double last = rows.epochs.back(), wide = steps.Tolerance(last);
    const auto regular = static_cast<double>(rows.epochs.size() - (first ? 1 : 0));
    if (regular < 1) continue;
    const auto low = static_cast<int64_t>(std::ceil((last * steps.per_epoch_ - wide) / regular));
    const auto high = static_cast<int64_t>(std::floor((last * steps.per_epoch_ + wide) / regular));
    for (int64_t stride = std::max<int64_t>(1, low); stride <= std::min(high, low + 4096);
         ++stride) {
      const int score = Roundness(stride) - (first ? 5 : 0);
      if (score < best || !fits(stride, first)) continue;
      unique = score > best;
      best = score;
      steps.stride_ = stride;
      steps.first_ = first;
    }
  }
  if (unique) return steps;
  steps.stride_ = 0;
  steps.first_ = false;
  // If the rows are not regular, the epochs alone must be precise enough to determine the step.
  if (steps.Tolerance(rows.epochs.back()) < 0.5) return steps;
  return std::nullopt;
}

int64_t RowSteps::Next(double epoch, bool training) {
  const double steps = std::clamp(epoch * per_epoch_, 0.0, kMostSteps);
  const double wide = Tolerance(epoch);
  const auto nearest = [&](int64_t unit) {
    return unit * std::llround(steps / static_cast<double>(unit));
  };
  int64_t step = nearest(1);
  if (!training) {
    if (std::fabs(steps - static_cast<double>(last_)) <= wide) return last_;
    return stride_ > 0 && wide >= 0.5 ? nearest(stride_) : step;
  }
  if (stride_ > 0) {
    const int64_t next = first_ && last_ == 0 ? 1 : (last_ / stride_ + 1) * stride_;
    const bool fits = std::fabs(steps - static_cast<double>(next)) <= wide;
    step = fits ? next : std::max<int64_t>(1, nearest(stride_));
  }
  last_ = step;
  return step;
}

int64_t CountedEpochs::Before(double epoch, int64_t count) {
  if (!rows_.empty() && epoch < rows_.back().first) {
    while (!rows_.empty() && rows_.back().first >= epoch) rows_.pop_back();
    back_ = count - (rows_.empty() ? 0 : rows_.back().second);
  }
  if (rows_.size() < kMost) rows_.emplace_back(epoch, count - back_ + 1);
  return count - back_;
}

int64_t BetweenBars::Step(int64_t above, int64_t below, bool training) {
  constexpr int64_t kRound = 5;
  below = std::max(above, below);
  const auto between = [&](int64_t step) { return step >= above && step <= below; };
  if (!training) return between(last_) ? last_ : above;
  const int64_t expected = last_ + (stride_ > 0 ? stride_ : last_);
  int64_t step = above;
  if (last_ > 0 && between(expected)) {
    step = expected;
  } else if (above == 0 || (last_ == 0 && above % kRound != 0 && below % kRound == 0)) {
    step = below;
  }
  if (last_ > 0 && step > last_) stride_ = step - last_;
  last_ = step;
  return step;
}

}  // namespace plumbline::audit
