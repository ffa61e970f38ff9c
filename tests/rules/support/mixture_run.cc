#include "tests/rules/support/mixture_run.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <sstream>

#include "tests/rules/support/spec_values.h"
#include "tests/support/batches.h"

namespace plumbline::rules::testing {
namespace {

constexpr int kBins = 16;
constexpr int kSequence = 64;

class Simulator {
 public:
  explicit Simulator(const MixtureRunSpec& spec)
      : spec_(spec), draw_(spec.seed), fixed_(Size(), 0.0), drift_(Size(), 0.0) {
    for (double& w : fixed_) w = spec.unlike * draw_.Normal();
    for (const auto& [expert, factor] : spec.popularity)
      fixed_[static_cast<size_t>(expert)] += std::log(factor);
    for (double& w : drift_) w = spec.drift * draw_.Normal();
  }

  v1::Batch Run() {
    v1::Batch batch;
    for (int rank = 0; rank < spec_.ranks; ++rank) {
      *batch.add_sources() = test::SourceOf("run", static_cast<uint32_t>(rank),
                                            static_cast<uint32_t>(spec_.ranks), spec_.attempt);
    }
    for (int step = 0; step < spec_.steps; ++step) {
      Wander();
      if (step >= spec_.opening && step % spec_.every != 0) continue;  // not recorded
      v1::Evidence shared;
      for (int rank = 0; rank < spec_.ranks; ++rank) {
        if (rank == 0 || !spec_.replicated) shared = Call(step);
        shared.set_source(static_cast<uint32_t>(rank));
        *batch.add_evidence() = shared;
      }
    }
    return batch;
  }

 private:
  size_t Size() const { return static_cast<size_t>(spec_.experts); }
  void Wander() {
    for (double& w : drift_)
      w = 0.95 * w + std::sqrt(1 - 0.95 * 0.95) * spec_.drift * draw_.Normal();
    const double c = spec_.wander_correlation;
    extra_ = c * extra_ + std::sqrt(1 - c * c) * spec_.wander * draw_.Normal();
  }

  // Sets cumulative shares of the experts for the next sequence.
  void Weigh(double grown) {
    cumulative_.resize(Size());
    double sum = 0;
    for (size_t e = 0; e < Size(); ++e) {
      const double topic = spec_.topics > 0 ? spec_.topics * draw_.Normal() : 0;
      sum += std::exp(fixed_[e] + drift_[e] + topic) * (e == 0 ? grown : 1);
      cumulative_[e] = sum;
    }
    for (double& c : cumulative_) c /= sum;
  }

  int DrawExpert() {
    const double u = draw_.Uniform();
    const auto at = std::upper_bound(cumulative_.begin(), cumulative_.end(), u);
    return static_cast<int>(std::min<std::ptrdiff_t>(at - cumulative_.begin(), spec_.experts - 1));
  }

  int DrawBin() {
    const double u = draw_.Uniform();
    return std::min(kBins - 1, static_cast<int>(kBins * (spec_.ragged ? u * u : u)));
  }

  v1::Evidence Call(int step) {
    const double progress = spec_.steps > 1 ? step / (spec_.steps - 1.0) : 0;
    const double grown = 1 + (spec_.grow - 1) * progress;
    load_.assign(Size(), 0);
    refused_.assign(Size(), 0);
    drops_.assign(kBins, 0);
    offers_.assign(kBins, 0);
    for (int i = 0; i < spec_.choices; ++i) {
      if (i == 0 || (spec_.topics > 0 && i % kSequence == 0)) Weigh(grown);
      Choose();
    }
    v1::Evidence evidence;
    evidence.mutable_site()->set_layer("layers.0");
    evidence.mutable_site()->set_op("routing");
    evidence.set_step(spec_.first_step + step);
    evidence.set_sample_size(static_cast<uint64_t>(spec_.choices));
    evidence.mutable_routing()->mutable_config()->set_mode(spec_.mode);
    evidence.mutable_routing()->mutable_config()->set_experts(static_cast<uint32_t>(spec_.experts));
    const bool poisoned = spec_.nan_every > 0 && step % spec_.nan_every == 0;
    const double entropy =
        spec_.entropy_first + (spec_.entropy_last - spec_.entropy_first) * progress;
    Fill(poisoned ? std::numeric_limits<double>::quiet_NaN() : entropy,
         *evidence.mutable_routing()->mutable_summary());
    return evidence;
  }

  void Choose() {
    const auto expert = static_cast<size_t>(DrawExpert());
    const int bin = DrawBin();
    ++offers_[static_cast<size_t>(bin)];
    const double share = spec_.refuse + extra_ + spec_.rise * (bin / (kBins - 1.0) - 0.5);
    const double capacity = spec_.capacity_factor * spec_.choices / spec_.experts;
    const bool full = spec_.capacity_factor > 0 && load_[expert] >= std::floor(capacity);
    if (full || (share > 0 && draw_.Uniform() < share)) {
      ++refused_[expert];
      ++drops_[static_cast<size_t>(bin)];
    } else {
      ++load_[expert];
    }
  }

  void Fill(double entropy, v1::RoutingSummary& s) {
    const auto padding = static_cast<uint32_t>(spec_.padding_share * spec_.choices);
    s.set_choices(static_cast<uint64_t>(spec_.choices));
    s.set_tokens(static_cast<uint64_t>(spec_.choices) + padding);
    s.set_padding(padding);
    load_[static_cast<size_t>(spec_.padding_expert)] += padding;
    s.mutable_load()->Assign(load_.begin(), load_.end());
    const uint64_t dropped = std::accumulate(refused_.begin(), refused_.end(), uint64_t{0});
    s.set_dropped(dropped);
    if (dropped > 0) {
      s.mutable_refused()->Assign(refused_.begin(), refused_.end());
      if (spec_.positions) s.mutable_drop_histogram()->Assign(drops_.begin(), drops_.end());
      if (spec_.positions && spec_.offered)
        s.mutable_offered_histogram()->Assign(offers_.begin(), offers_.end());
    }
    s.set_entropy_mean(entropy);
    s.set_margin_mean(std::isnan(entropy) ? entropy : draw_.Uniform());
    s.set_z_mean(1);
  }

  const MixtureRunSpec& spec_;
  Draw draw_;
  std::vector<double> fixed_;
  std::vector<double> drift_;
  double extra_ = 0;
  std::vector<double> cumulative_;
  std::vector<uint32_t> load_;
  std::vector<uint32_t> refused_;
  std::vector<uint64_t> drops_;
  std::vector<uint64_t> offers_;
};

// Parses "5:3.0 2:0.05".
std::vector<std::pair<int, double>> Popularity(const std::string& text) {
  std::vector<std::pair<int, double>> list;
  std::istringstream in(text);
  std::string entry;
  while (in >> entry) {
    const size_t colon = entry.find(':');
    list.emplace_back(std::stoi(entry), std::stod(entry.substr(colon + 1)));
  }
  return list;
}

}  // namespace

void Set(MixtureRunSpec& spec, const std::string& key, const std::string& value) {
  if (key == "popularity") {
    spec.popularity = Popularity(value);
    return;
  }
  if (key == "seed") {
    spec.seed = std::stoull(value);
    return;
  }
  SetField({.whole = {{"experts", &spec.experts},
                      {"choices", &spec.choices},
                      {"ranks", &spec.ranks},
                      {"steps", &spec.steps},
                      {"opening", &spec.opening},
                      {"every", &spec.every},
                      {"padding_expert", &spec.padding_expert},
                      {"nan_every", &spec.nan_every}},
            .number = {{"unlike", &spec.unlike},
                       {"drift", &spec.drift},
                       {"topics", &spec.topics},
                       {"grow", &spec.grow},
                       {"refuse", &spec.refuse},
                       {"rise", &spec.rise},
                       {"wander", &spec.wander},
                       {"wander_correlation", &spec.wander_correlation},
                       {"capacity_factor", &spec.capacity_factor},
                       {"entropy_first", &spec.entropy_first},
                       {"entropy_last", &spec.entropy_last},
                       {"padding_share", &spec.padding_share}},
            .flag = {{"ragged", &spec.ragged},
                     {"positions", &spec.positions},
                     {"offered", &spec.offered},
                     {"replicated", &spec.replicated}},
            .text = {{"mode", &spec.mode}}},
           key, value);
}

v1::Batch MixtureRun(const MixtureRunSpec& spec) { return Simulator(spec).Run(); }

}  // namespace plumbline::rules::testing
