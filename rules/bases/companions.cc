#include "rules/bases/companions.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <span>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "analysis/role/role.h"

namespace plumbline::rules {
namespace {

constexpr size_t kMostCompanions = 64, kMostChanges = 64;

bool NamesPhase(const PlainWords& words) {
  constexpr std::string_view kNames[] = {
      "stage",          "phase",          "task",       "task id",           "seq len",
      "seqlen",         "seq length",     "difficulty", "sequence length",   "max len",
      "curriculum",     "context length", "level",      "curriculum step",   "max length",
      "max seq length", "max seq len",    "block size", "image size",        "img size",
      "resolution",     "imgsz",          "round",      "curriculum seqlen", "fold",
      "cycle",          "trial",          "session",    "experience"};
  std::string name;
  for (const std::string& word : words) {
    if (word == "train" && name.empty()) continue;
    name += (name.empty() ? "" : " ") + word;
  }
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

// A phase in which another model begins anew.
bool NamesModel(const PlainWords& words) {
  constexpr std::string_view kNames[] = {"fold",     "cv",    "kfold",   "member",
                                         "ensemble", "seed",  "trial",   "split",
                                         "run",      "model", "restart", "replica"};
  return words.size() <= 2 && HasAnyWord(words, kNames);
}

bool NamesWeight(const PlainWords& words) {
  constexpr std::string_view kLast[] = {
      "weight", "coef",   "coeff",   "coefficient", "beta",         "alpha",   "lambda",
      "mixup",  "cutmix", "dropout", "smoothing",   "augmentation", "capacity"};
  constexpr std::string_view kOther[] = {"decay", "norm", "grad", "std", "lr", "rate", "layers"};
  constexpr std::string_view kFirst[] = {"w", "weight", "coef", "lambda", "alpha", "beta"};
  constexpr size_t kMostWords = 4;
  return !words.empty() && words.size() <= kMostWords && !HasAnyWord(words, kOther) &&
         (std::find(std::begin(kLast), std::end(kLast), words.back()) != std::end(kLast) ||
          std::find(std::begin(kFirst), std::end(kFirst), words.front()) != std::end(kFirst));
}

bool NamesQuality(const PlainWords& words) {
  constexpr std::string_view kAny[] = {"acc",  "accuracy", "top1", "top5",    "auc",       "auroc",
                                       "map",  "miou",     "f1",   "bleu",    "precision", "recall",
                                       "psnr", "ssim",     "dice", "success", "ndcg",      "mrr"};
  return HasAnyWord(words, kAny);
}

double MedianOfBlocks(std::span<const BlockMedians::Block> blocks) {
  std::vector<double> values;
  for (const BlockMedians::Block& block : blocks) values.push_back(block.median);
  return MedianOf(values);
}

// Returns the number of blocks that begin up to a step.
size_t BlocksUpTo(const BlockMedians& course, double step) {
  const auto& blocks = course.blocks();
  const auto after = std::find_if(blocks.begin(), blocks.end(), [step](const auto& block) {
    return static_cast<double>(block.step) > step;
  });
  return static_cast<size_t>(after - blocks.begin());
}

// "rewards/accuracies", "rewards/margins"
bool IsOfPairs(const std::string& op) {
  constexpr std::string_view kOfPairs[] = {"accuracies", "accuracy", "margins", "margin"};
  return RoleByName(op) == SeriesRole::kReward && HasAnyWord(PlainWordsOf(op), kOfPairs);
}

}  // namespace

PlainWords PlainWordsOf(const std::string& op) {
  return absl::StrSplit(absl::AsciiStrToLower(op), absl::ByAnyChar("/_-.: ()[]"),
                        absl::SkipEmpty());
}

bool HasAnyWord(const PlainWords& words, std::span<const std::string_view> any) {
  return std::find_first_of(words.begin(), words.end(), any.begin(), any.end()) != words.end();
}

Companions::Kind Companions::KindOf(const std::string& op) {
  const SeriesRole role = RoleByName(op);
  if (IsOfPairs(op)) return Kind::kQuality;
  if (role == SeriesRole::kLoss) return Kind::kPart;
  if (role == SeriesRole::kAuxiliaryLoss)
    return SideByName(op) == GameSide::kNone ? Kind::kTerm : Kind::kPart;
  if (role != SeriesRole::kNone && role != SeriesRole::kAccuracy) return Kind::kNone;
  const PlainWords words = PlainWordsOf(op);
  return NamesModel(words)     ? Kind::kModel
         : NamesPhase(words)   ? Kind::kPhase
         : NamesWeight(words)  ? Kind::kWeight
         : NamesQuality(words) ? Kind::kQuality
                               : Kind::kNone;
}

void Companions::Series::Take(int64_t step, double newest) {
  constexpr uint64_t kFirst = 5;
  if (!std::isfinite(newest)) return;
  if (points == 0) begin = step;
  if (newest == 0 && ons == 0) ++zeros;
  if ((newest != 0 || ons > 0) && ons < kFirst) {
    if (ons++ == 0) on = step;
    size = std::max(size, std::fabs(newest));
  }
  if (points++ > 0 && value != newest) {
    ++(newest > value ? ups : downs);
    if (is_phase() && steps.size() < kMostChanges) steps.push_back(step);
  }
  value = newest;
  if (!is_phase() && kind != Kind::kPart) course.Add(step, newest);
}

Companions::Series* Companions::Of(const std::string& op) {
  const auto known = series_.find(op);
  if (known != series_.end()) return &known->second;
  if (series_.size() >= kMostCompanions) return nullptr;
  Series& fresh = series_[op];
  fresh.kind = KindOf(op);
  return &fresh;
}

std::optional<std::string> Companions::PhaseNear(int64_t step, double within, uint64_t points,
                                                 bool of_model) const {
  for (const auto& [op, phase] : series_) {
    if (of_model && phase.kind != Kind::kModel) continue;
    if (phase.ups + phase.downs > std::min<uint64_t>(kMostChanges, points / 8)) continue;
    for (const int64_t at : phase.steps) {
      if (std::fabs(static_cast<double>(at - step)) <= within) return op;
    }
  }
  return std::nullopt;
}

std::optional<std::string> Companions::WeightMoved(int64_t step, double within,
                                                   double until) const {
  constexpr double kMoved = 0.2;
  for (const auto& [op, weight] : series_) {
    const auto& blocks = weight.course.blocks();
    const auto [fewer, more] = std::minmax(weight.ups, weight.downs);
    if (weight.kind != Kind::kWeight || blocks.empty() || 3 * fewer > more) continue;
    const auto [least, most] =
        std::minmax_element(blocks.begin(), blocks.end(),
                            [](const auto& a, const auto& b) { return a.median < b.median; });
    const double span =
        std::max(most->median, weight.value) - std::min(least->median, weight.value);
    const size_t before = BlocksUpTo(weight.course, static_cast<double>(step) - within);
    const double was = blocks[before == 0 ? 0 : before - 1].median;
    const size_t then = BlocksUpTo(weight.course, until);
    const double is =
        then == blocks.size() ? weight.value : blocks[then == 0 ? 0 : then - 1].median;
    if (span > 0 && std::fabs(is - was) >= kMoved * span)
      return absl::StrFormat("%s (%.3g to %.3g)", op, was, is);
  }
  return std::nullopt;
}

std::pair<std::string, double> Companions::TermRose(int64_t step) const {
  std::pair<std::string, double> most{"", 0};
  for (const auto& [op, term] : series_) {
    if (term.kind != Kind::kTerm) continue;
    const double rise = RoseSince(term.course, step);
    if (rise > most.second) most = {op, rise};
  }
  return most;
}

std::optional<std::pair<std::string, double>> Companions::SwitchedOn(int64_t step, double within,
                                                                     int64_t start) const {
  constexpr uint64_t kFewestZeros = 3;
  for (const auto& [op, loss] : series_) {
    const bool late = static_cast<double>(loss.begin - start) > within;
    if ((loss.kind != Kind::kPart && loss.kind != Kind::kTerm) || loss.ons == 0) continue;
    if ((loss.zeros >= kFewestZeros || late) &&
        std::fabs(static_cast<double>(loss.on - step)) <= within)
      return std::pair(op, loss.size);
  }
  return std::nullopt;
}

bool Companions::OfPairs() const {
  return std::any_of(series_.begin(), series_.end(), [](const auto& one) {
    return one.second.kind == Kind::kQuality && IsOfPairs(one.first);
  });
}

std::optional<std::string> Companions::QualityImproved(int64_t onset, int64_t last) const {
  for (const auto& [op, quality] : series_) {
    if (quality.kind == Kind::kQuality && ImprovedSince(quality.course, 1, onset, last)) return op;
  }
  return std::nullopt;
}

std::optional<std::string> Companions::QualityRises() const {
  constexpr double kErrors = 3;
  constexpr size_t kFewest = 8;
  for (const auto& [op, quality] : series_) {
    const std::span blocks(quality.course.blocks());
    if (quality.kind != Kind::kQuality || blocks.size() < kFewest) continue;
    std::vector<double> values;
    for (const BlockMedians::Block& block : blocks) values.push_back(block.median);
    const size_t third = blocks.size() / 3;
    const SeriesNoise noise = NoiseOf(values);
    const double error =
        1.25 * noise.sigma * std::sqrt(2 * noise.inflation / static_cast<double>(third));
    const double rise = MedianOfBlocks(blocks.last(third)) - MedianOfBlocks(blocks.first(third));
    if (rise > kErrors * error) return op;
  }
  return std::nullopt;
}

double RoseSince(const BlockMedians& course, int64_t step) {
  constexpr size_t kBlocks = 3;
  const std::span blocks(course.blocks());
  const size_t before = BlocksUpTo(course, static_cast<double>(step));
  const size_t of = std::min(kBlocks, before), newest = std::min(kBlocks, blocks.size() - before);
  return MedianOfBlocks(blocks.last(newest)) - MedianOfBlocks(blocks.subspan(before - of, of));
}

bool ImprovedSince(const BlockMedians& course, double sign, int64_t onset, int64_t last,
                   bool best_last) {
  constexpr size_t kFewest = 3, kMostBefore = 8;
  constexpr double kErrors = 3, kNearBest = 0.1;
  const std::span blocks(course.blocks());
  const size_t before = BlocksUpTo(course, static_cast<double>(onset));
  const size_t after = blocks.size() - before;
  if (before == 0 || after < kFewest) return false;
  if (2 * blocks.back().step < onset + last) return false;
  const size_t newest = std::max(kFewest, after / 4), old = std::min(before, kMostBefore);
  const double now = sign * MedianOfBlocks(blocks.last(newest));
  const double was = sign * MedianOfBlocks(blocks.subspan(before - old, old));
  std::vector<double> values;
  for (const BlockMedians::Block& block : blocks) values.push_back(sign * block.median);
  const SeriesNoise noise = NoiseOf(values);
  const double error =
      1.25 * noise.sigma *
      std::sqrt(noise.inflation / static_cast<double>(newest) + 1 / static_cast<double>(old));
  const double best = *std::max_element(values.begin(), values.end());
  return now - was > kErrors * error &&
         (!best_last ||
          best - now <= std::max(3 * noise.sigma, kNearBest * (best - values.front())));
}

}  // namespace plumbline::rules
