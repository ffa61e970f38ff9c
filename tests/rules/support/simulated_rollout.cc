#include "tests/rules/support/simulated_rollout.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_format.h"
#include "base/real.h"

namespace plumbline::rules::testing {
namespace {

constexpr double kFlipShare = .03;
constexpr int kLevels = 8;  // of a stale cache's noise

int Below(int n, Draw& draw) {
  return std::min(n - 1, static_cast<int>(draw.Uniform() * static_cast<double>(n)));
}

double RoundedText(double value, int decimals) {
  if (!std::isfinite(value)) return value;
  const double unit = std::pow(10.0, decimals);
  return std::nearbyint(value * unit) / unit;
}

}  // namespace

void Set(RolloutSpec& s, const std::string& key, const std::string& value) {
  SetField({.whole = {{"vocabulary", &s.vocabulary},
                      {"contexts", &s.contexts},
                      {"steps", &s.steps},
                      {"sequences", &s.sequences},
                      {"length", &s.length},
                      {"first_step", &s.first_step},
                      {"workers", &s.workers},
                      {"seed", &s.seed},
                      {"lag", &s.lag},
                      {"in_flight", &s.in_flight},
                      {"restart_every", &s.restart_every},
                      {"top_k", &s.top_k},
                      {"from_step", &s.from_step},
                      {"until_step", &s.until_step},
                      {"pack", &s.pack},
                      {"guilty_every", &s.guilty_every},
                      {"versions", &s.versions},
                      {"reset", &s.reset},
                      {"decimals", &s.decimals},
                      {"mask_every", &s.mask_every},
                      {"poison_every", &s.poison_every},
                      {"null_beyond_rank", &s.null_beyond_rank},
                      {"epochs", &s.epochs}},
            .number = {{"sharpness", &s.sharpness},
                       {"noise_scale", &s.noise_scale},
                       {"drift", &s.drift},
                       {"temperature", &s.temperature},
                       {"other_temperature", &s.other_temperature},
                       {"top_p", &s.top_p},
                       {"share", &s.share},
                       {"size", &s.size},
                       {"kept_share", &s.kept_share},
                       {"rescore_k2", &s.rescore_k2}},
            .flag = {{"uneven", &s.uneven},
                     {"ramp", &s.ramp},
                     {"learning", &s.learning},
                     {"declared", &s.declared},
                     {"entropy", &s.entropy},
                     {"varentropy", &s.varentropy},
                     {"rollout_entropy", &s.rollout_entropy},
                     {"rollout_varentropy", &s.rollout_varentropy},
                     {"versions_recorded", &s.versions_recorded},
                     {"advantages", &s.advantages},
                     {"behaviour", &s.behaviour},
                     {"routing", &s.routing},
                     {"ids", &s.ids},
                     {"far", &s.far},
                     {"halves", &s.halves},
                     {"logits", &s.logits}},
            .text = {{"family", &s.family},
                     {"noise", &s.noise},
                     {"sin", &s.sin},
                     {"guilty", &s.guilty},
                     {"rounded", &s.rounded},
                     {"mode", &s.mode},
                     {"selection", &s.selection},
                     {"source", &s.source}},
            .dtype = {}},
           key, value);
}

RolloutSimulator::RolloutSimulator(const RolloutSpec& spec) : spec_(spec), cells_(spec_) {}

double RolloutSimulator::largest_d2() const { return largest_d2_; }

bool RolloutSimulator::Guilty(int step, int lag, const RolloutSequence& s) const {
  const int every = std::max(1, spec_.guilty_every);
  if (spec_.guilty == "worker")
    return std::stoi(s.worker.substr(s.worker.rfind('-') + 1)) % every == 0;
  if (spec_.guilty == "step") return step % every == 0;
  if (spec_.guilty == "version") return (step - lag) % every == 0;
  return true;
}

// Returns the deviation of the further noise of a token, for faults that depend on its position.
double RolloutSimulator::ExtraAt(int step, int position, const RolloutSequence& s) const {
  const double octave = position < 8 ? 0 : std::floor(std::log2(position / 4));
  if (spec_.sin == "template") return spec_.size * std::exp2(-octave / 2);
  const double fading = octave < 4 ? spec_.size * std::pow(0.3, octave) : 0;
  if (spec_.sin == "packed") return number_ % static_cast<size_t>(spec_.pack) == 0 ? 0 : fading;
  if (spec_.sin != "stale-prefix" || step < 1 || s.cached_tokens < 512) return 0;
  return fading * std::sqrt(std::min(step, 8) / 8.0);
}

CellKind RolloutSimulator::KindOf(int step, int lag, int position, const RolloutSequence& s,
                                  Draw& draw) const {
  CellKind kind{.lag = lag, .after = lag, .extra = 0, .flipped = false, .sinful = 0};
  if (spec_.learning) kind.engine = step - lag;
  kind.flipped = spec_.noise == "moe" && draw.Uniform() < kFlipShare;
  if (!Sinful(step)) return kind;
  kind.sinful = Guilty(step, lag, s) ? 1 : spec_.other_temperature > 0 ? 2 : 0;
  if (kind.sinful == 0) return kind;
  if (spec_.sin == "missed-sync" || spec_.sin == "standing-version")
    kind.after += spec_.ramp ? step - spec_.from_step + 1 : spec_.versions;
  if (spec_.sin == "unmerged") {
    kind.engine = 0;
    kind.after = step;
  }
  if (spec_.sin == "batch-variance" || spec_.sin == "other-model") kind.extra = spec_.size;
  if (spec_.sin == "dropout") {
    kind.extra = spec_.size;
    kind.pass = 1 + Below(24, draw);
  }
  if (const double extra = ExtraAt(step, position, s); extra > 0) kind.extra = extra;
  if (spec_.sin == "stale-cache") {
    const double age = static_cast<double>((step - spec_.from_step) % spec_.reset + 1) /
                       static_cast<double>(spec_.reset);
    const double cached = static_cast<double>(s.cached_tokens) / 1024;
    kind.extra = spec_.size * std::round(kLevels * age * cached) / kLevels;
  }
  return kind;
}

void RolloutSimulator::DrawTokens(int step, RolloutSequence* s, Draw& draw) {
  int length = spec_.length;
  if (spec_.uneven) {
    const double u = -std::log(1 - draw.Uniform()) * spec_.length;
    length = std::clamp(static_cast<int>(u), 1, 4 * spec_.length);
  }
  const int first_lag = spec_.in_flight > 0 ? spec_.lag
                        : spec_.lag > 0     ? Below(spec_.lag + 1, draw)
                                            : 0;
  const double advantage = draw.Normal();
  s->train_version = 1000 + step;
  s->t_start = 100.0 * step;
  s->t_end = s->t_start + .01 * length;
  origins_.clear();
  for (int i = 0; i < length; ++i) {
    const int arrived = 2 * i >= length ? spec_.in_flight : 0;
    const int lag = std::max(0, first_lag - arrived);
    const RolloutCell& cell =
        cells_.Get(KindOf(step, lag, i, *s, draw), Below(cells_.contexts(), draw));
    largest_d2_ = std::max(largest_d2_, cell.moment_d2);
    const int32_t v = cell.DrawToken(draw);
    origins_.push_back({&cell, v});
    RolloutToken& t = s->tokens.emplace_back();
    t.token = v;
    t.position = i;
    const bool stands = spec_.sin == "standing-version" && Sinful(step);
    t.lag = lag + (stands ? step - spec_.from_step + 1 : 0);
    t.version = s->train_version - t.lag;
    if (spec_.advantages) t.advantage = advantage;
  }
}

void RolloutSimulator::Sin(int step, RolloutSequence* s, Draw& draw) {
  const bool sinful = Sinful(step);
  const auto n = static_cast<int>(origins_.size());
  std::vector<Origin> trained = origins_;
  if (sinful && spec_.sin == "off-by-one" && Guilty(step, 0, *s)) {
    std::rotate(trained.begin(), trained.begin() + 1, trained.end());
  }
  if (sinful && spec_.sin == "retokenised") {
    constexpr int kRun = 5;  // mean tokens of a stretch of text that was tokenised differently
    for (int i = 0; i < n; ++i) {
      if (!(draw.Uniform() < spec_.share / kRun)) continue;
      const int end = std::min(n, i + 1 + Below(2 * kRun - 1, draw));
      for (; i < end; ++i) {
        trained[static_cast<size_t>(i)].token =
            static_cast<int32_t>(Below(cells_.vocabulary(), draw));
      }
    }
  }
  for (size_t i = 0; i < origins_.size(); ++i) {
    const bool leaks = sinful && spec_.sin == "leak" && draw.Uniform() < spec_.share;
    if (leaks) {
      const auto& values = origins_[i].cell->rollout;
      origins_[i].token =
          static_cast<int32_t>(std::max_element(values.begin(), values.end()) - values.begin());
      trained[i] = origins_[i];
      s->tokens[i].token = origins_[i].token;
    }
    RolloutToken& t = s->tokens[i];
    t.rollout = origins_[i].cell->rollout[static_cast<size_t>(origins_[i].token)];
    t.train = trained[i].cell->train[static_cast<size_t>(trained[i].token)];
    const bool zero = sinful && spec_.sin == "zero-filled" && draw.Uniform() < spec_.share;
    if (zero) t.rollout = 0;
    if (spec_.null_beyond_rank > 0) {
      const std::vector<double>& all = origins_[i].cell->rollout;
      const double own = t.rollout;
      const auto above = std::count_if(all.begin(), all.end(), [&](double v) { return v > own; });
      if (above >= spec_.null_beyond_rank) t.rollout = kNotRecorded;
    }
    if (spec_.entropy) t.train_entropy = trained[i].cell->of_train.entropy;
    if (spec_.varentropy) t.train_varentropy = trained[i].cell->of_train.varentropy;
    if (spec_.rollout_entropy) t.rollout_entropy = origins_[i].cell->of_rollout.entropy;
    if (spec_.rollout_varentropy) t.rollout_varentropy = origins_[i].cell->of_rollout.varentropy;
    if (spec_.behaviour)
      t.behaviour = trained[i].cell->behaviour[static_cast<size_t>(trained[i].token)];
    if (sinful && spec_.sin == "rewarded") t.train += spec_.size * t.advantage;
    if (spec_.far) t.train = t.rollout + (i % 2 == 0 ? 20 : -20);
  }
}

// Applies rounding, masks and poison to the recorded values.
void RolloutSimulator::Record(RolloutSequence* s, Draw& draw) const {
  const bool f16 = spec_.rounded == "f16-both";
  const DType format = f16 ? DType::kF16 : DType::kBF16;
  const bool both = f16 || spec_.rounded == "both";
  size_t i = 0;
  int poison = 0;
  for (RolloutToken& t : s->tokens) {
    ++i;
    if (both || spec_.rounded == "train") t.train = RoundToFormat(t.train, format);
    if (both || spec_.rounded == "rollout") t.rollout = RoundToFormat(t.rollout, format);
    if (spec_.decimals >= 0) {
      t.train = RoundedText(t.train, spec_.decimals);
      t.rollout = RoundedText(t.rollout, spec_.decimals);
    }
    if (spec_.mask_every > 0 && i % static_cast<size_t>(spec_.mask_every) == 0) {
      t.judged = false;
      t.train = draw.Normal();
      t.rollout = -kInfinity;
    }
    if (spec_.poison_every > 0 && i % static_cast<size_t>(spec_.poison_every) == 0) {
      const int kind = poison++ % 3;
      if (kind == 0) t.rollout = kNotRecorded;
      if (kind == 1) t.train = kNotRecorded;
      if (kind == 2) t.rollout = -kInfinity;
    }
    if (!spec_.ids) t.token = -1;
    if (!spec_.versions_recorded) t.version = t.lag = kNoLag;
    s->judged += t.judged;
  }
  if (!spec_.versions_recorded) s->train_version = kNoVersion;
  const auto grid = [&](const char* side) {
    ValueGrid g;
    if (both || spec_.rounded == side) g.format = format;
    if (spec_.decimals >= 0) g.decimal = .5 * std::pow(10.0, -spec_.decimals);
    return g;
  };
  s->train_grid = grid("train");
  s->rollout_grid = grid("rollout");
}

void RolloutSimulator::Describe(RolloutSequence* s) const {
  if (spec_.mode == "raw") s->mode = v1::LOGPROB_MODE_RAW;
  if (spec_.mode == "processed") s->mode = v1::LOGPROB_MODE_PROCESSED;
  if (spec_.declared) {
    s->temperature = spec_.temperature;
    s->top_p = spec_.top_p;
    s->top_k = spec_.top_k;
  }
  if (spec_.selection == "all") s->selection = v1::LogprobsSequence::SELECTION_ALL;
  if (spec_.selection == "filtered") s->selection = v1::LogprobsSequence::SELECTION_FILTERED;
  if (spec_.kept_share > 0) s->kept_share = spec_.kept_share;
  if (spec_.source == "sampled") s->source = v1::LogprobsSequence::SOURCE_SAMPLED;
  if (spec_.source == "rescored") s->source = v1::LogprobsSequence::SOURCE_RESCORED;
  if (spec_.rescore_k2 > 0) s->rescore_k2 = spec_.rescore_k2;
}

std::vector<RolloutSequence> RolloutSimulator::Step(int step, uint64_t seed) {
  Draw draw((static_cast<uint64_t>(spec_.seed) << 32) ^ (seed * 0x9e3779b97f4a7c15u) ^
            (static_cast<uint64_t>(step) + 1));
  std::vector<RolloutSequence> out(static_cast<size_t>(spec_.sequences));
  step_origins_.clear();
  for (size_t i = 0; i < out.size(); ++i) {
    RolloutSequence& s = out[i];
    s.id = absl::StrFormat("%d.%04d", step, i);
    s.worker = absl::StrFormat("worker-%d", static_cast<int>(i) % std::max(1, spec_.workers));
    s.step = step;
    s.cached_tokens = Below(1024, draw);
    number_ = i;
    DrawTokens(step, &s, draw);
    Sin(step, &s, draw);
    Record(&s, draw);
    Describe(&s);
    step_origins_.push_back(origins_);
  }
  return out;
}

v1::Logits RolloutSimulator::LogitsOf(int step, uint64_t seed) {
  v1::Logits out;
  const std::vector<RolloutSequence> sequences = Step(step, seed);
  out.mutable_config()->set_vocabulary(static_cast<uint64_t>(cells_.vocabulary()));
  if (spec_.mode == "raw") out.mutable_config()->set_mode(v1::LOGPROB_MODE_RAW);
  if (spec_.mode == "processed") out.mutable_config()->set_mode(v1::LOGPROB_MODE_PROCESSED);
  if (spec_.declared) out.mutable_config()->set_temperature(spec_.temperature);
  for (size_t i = 0; i < sequences.size(); ++i) {
    for (size_t k = 0; k < sequences[i].tokens.size(); ++k) {
      const RolloutToken& t = sequences[i].tokens[k];
      const RolloutCell& cell = *step_origins_[i][k].cell;
      v1::LogitsRow& row = *out.add_rows();
      row.set_row(static_cast<uint64_t>(out.rows_size() - 1));
      row.set_token(t.token);
      row.set_logprob_train(t.train);
      row.set_logprob_rollout(t.rollout);
      row.set_entropy_train(cell.of_train.entropy);
      row.set_entropy_rollout(cell.of_rollout.entropy);
      row.set_varentropy_train(cell.of_train.varentropy);
      row.set_varentropy_rollout(cell.of_rollout.varentropy);
      row.set_kl_train_rollout(cell.kl_train_rollout);
      row.set_kl_rollout_train(cell.kl_rollout_train);
      row.set_sequence_id(sequences[i].id);
      row.set_position(t.position);
      for (const double m : cell.log_moments) row.add_log_moments(m);
      for (const double m : cell.downward_means) row.add_downward_means(m);
    }
  }
  out.mutable_summary()->set_rows(static_cast<uint64_t>(out.rows_size()));
  out.mutable_summary()->set_usable(static_cast<uint64_t>(out.rows_size()));
  return out;
}

}  // namespace plumbline::rules::testing
