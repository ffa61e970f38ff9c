#include "analysis/sums/model_search.h"

#include <algorithm>
#include <cmath>

#include "base/real.h"

namespace plumbline::sums {
namespace {

constexpr RoundingMode kModelModes[] = {RoundingMode::kNearestEven, RoundingMode::kNearestAway,
                                        RoundingMode::kTowardZero, RoundingMode::kDown,
                                        RoundingMode::kUp};

void AddProductVariants(const SumModel& model, std::vector<SumModel>* variants) {
  if (!HasProducts(model.kind)) return;
  for (const uint8_t fused : {0, 1}) {
    variants->push_back(model);
    std::fill(variants->back().fused.begin(), variants->back().fused.end(), fused);
  }
  variants->push_back(model);
  variants->back().product = model.accumulator();
  std::fill(variants->back().fused.begin(), variants->back().fused.end(), 0);
}

std::vector<SumModel> NearVariants(const SumModel& model) {
  std::vector<SumModel> variants;
  AddProductVariants(model, &variants);
  for (const SumFormat& root :
       {SumFormatOf(DType::kF64), model.accumulator(), SumFormatOf(model.output)}) {
    variants.push_back(model);
    variants.back().formats.back() = root;
  }
  variants.push_back(model);
  std::fill(variants.back().formats.begin(), variants.back().formats.end(),
            SumFormatOf(DType::kF64));
  for (const bool inputs : {true, false}) {
    variants.push_back(model);
    bool& flag =
        inputs ? variants.back().arithmetic.flush_inputs : variants.back().arithmetic.flush_results;
    flag = !flag;
  }
  for (const RoundingMode mode : kModelModes) {
    variants.push_back(model);
    variants.back().arithmetic.store = mode;
  }
  return variants;
}

// Keeps the better model. Accepts the first model that is right on every sample.
void Consider(const SumModel& model, const Answers& answers, SearchResult* best) {
  const auto samples = static_cast<int>(answers.y.size());
  const int matches = Matches(model, answers, best->accepted ? 0 : samples - best->matches);
  if (matches == samples && best->accepted) {
    std::string words = ArithmeticInWords(model);
    if (words != ArithmeticInWords(best->model)) best->also.push_back(std::move(words));
    return;
  }
  if (best->accepted || (matches <= best->matches && best->model.tree.nodes() > 0)) return;
  best->model = model;
  best->matches = matches;
  best->accepted = matches == samples;
}

}  // namespace

absl::StatusOr<Answers> AnswersOnRandom(Prober* prober, uint64_t seed, int samples) {
  Random random(seed);
  Answers answers;
  for (int k = 0; k < samples; ++k) {
    answers.addends.push_back(DrawAddends(prober->target(), k, &random));
    const auto y = prober->Call(answers.addends.back().a, answers.addends.back().b);
    if (!y.ok()) return y.status();
    answers.y.push_back(*y);
  }
  return answers;
}

int Matches(const SumModel& model, const Answers& answers, int most_misses) {
  Replay replay(model);
  int matches = 0;
  int misses = 0;
  for (size_t k = 0; k < answers.y.size(); ++k) {
    const double y = replay.Run(answers.addends[k].a, answers.addends[k].b);
    if (SameResult(y, answers.y[k])) {
      ++matches;
    } else if (++misses > most_misses) {
      break;
    }
  }
  return matches;
}

SearchResult SearchModel(const std::vector<SumModel>& candidates, const Answers& answers) {
  SearchResult best;
  for (const SumModel& model : candidates) Consider(model, answers, &best);
  if (best.accepted) return best;
  // Change one property at a time, in three rounds. Each round starts from the best model so far.
  for (int round = 0; round < 3 && !best.accepted; ++round) {
    const int before = best.matches;
    for (const SumModel& variant : NearVariants(SumModel(best.model))) {
      Consider(variant, answers, &best);
      if (best.accepted) return best;
    }
    if (best.matches == before) break;
  }
  return best;
}

std::vector<Scored> RivalsOf(const SumModel& model, const Answers& answers) {
  const auto samples = static_cast<int>(answers.y.size());
  std::vector<Scored> rivals;
  const auto add = [&](const char* words, const SumModel& rival) {
    rivals.push_back({words, Matches(rival, answers, samples)});
  };
  const auto with = [&](SummationTree tree) {
    SumModel rival = model;
    rival.formats.assign(static_cast<size_t>(tree.nodes()), model.accumulator());
    rival.tree = std::move(tree);
    return rival;
  };
  const int n = model.tree.leaves();
  if (n > 2) {
    const std::string hash = model.tree.Hash();
    if (SummationTree t = LeftFold(n); t.Hash() != hash) add("left fold", with(std::move(t)));
    if (SummationTree t = Pairwise(n); t.Hash() != hash) add("pairwise", with(std::move(t)));
  }
  SumModel rival = model;
  std::fill(rival.formats.begin(), rival.formats.end(), SumFormatOf(DType::kF64));
  if (rival.formats != model.formats) add("every node in f64", rival);
  rival = model;
  std::fill(rival.formats.begin(), rival.formats.end(), model.accumulator());
  if (rival.formats != model.formats) add("every node in the usual format", rival);
  if (HasProducts(model.kind)) {
    for (const uint8_t fused : {0, 1}) {
      rival = model;
      std::fill(rival.fused.begin(), rival.fused.end(), fused);
      if (rival.fused != model.fused)
        add(fused ? "all products unrounded" : "all products rounded", rival);
    }
  }
  return rivals;
}

}  // namespace plumbline::sums
