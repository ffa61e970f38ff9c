#include "analysis/frame/finding_builder.h"

#include <utility>

namespace plumbline::analysis {

FindingBuilder::FindingBuilder() {
  verdict_.set_kind(v1::Verdict::KIND_FINDING);
  verdict_.mutable_finding();
}

FindingBuilder::FindingBuilder(v1::Level level, v1::Strength strength) : FindingBuilder() {
  Level(level).Strength(strength);
}

FindingBuilder& FindingBuilder::Level(v1::Level level) {
  finding().set_level(level);
  return *this;
}

FindingBuilder& FindingBuilder::Strength(v1::Strength strength) {
  finding().set_strength(strength);
  return *this;
}

FindingBuilder& FindingBuilder::Title(std::string title) {
  finding().set_title(std::move(title));
  return *this;
}

FindingBuilder& FindingBuilder::Explain(std::string explanation) {
  finding().set_explanation(std::move(explanation));
  return *this;
}

FindingBuilder& FindingBuilder::Cause(std::string id, double confidence) {
  finding().mutable_cause()->set_id(std::move(id));
  finding().mutable_cause()->set_confidence(confidence);
  return *this;
}

FindingBuilder& FindingBuilder::Measured(std::string name, double value, std::string unit) {
  v1::Quantity& measured = *finding().mutable_measured();
  measured.set_name(std::move(name));
  measured.set_value(value);
  measured.set_unit(std::move(unit));
  return *this;
}

FindingBuilder& FindingBuilder::Threshold(double value, std::string source) {
  finding().mutable_threshold()->set_value(value);
  finding().mutable_threshold()->set_source(std::move(source));
  return *this;
}

FindingBuilder& FindingBuilder::Lost(double rank_seconds, bool on_gpus) {
  finding().set_lost_rank_seconds(rank_seconds > 0 ? rank_seconds : 0);
  finding().set_lost_on_gpus(on_gpus);
  return *this;
}

FindingBuilder& FindingBuilder::Samples(uint64_t count) {
  finding().set_sample_size(count);
  return *this;
}

FindingBuilder& FindingBuilder::FalseAlarm(std::string kind, double value) {
  finding().mutable_false_alarm()->set_kind(std::move(kind));
  finding().mutable_false_alarm()->set_value(value);
  return *this;
}

FindingBuilder& FindingBuilder::Assume(std::string assumption) {
  finding().add_assumptions(std::move(assumption));
  return *this;
}

FindingBuilder& FindingBuilder::Witness(const std::string& key, double value) {
  Put(*finding().mutable_witness(), key, value);
  return *this;
}

FindingBuilder& FindingBuilder::Witness(const std::string& key, std::string_view value) {
  Put(*finding().mutable_witness(), key, value);
  return *this;
}

FindingBuilder& FindingBuilder::Fix(std::string fix) {
  finding().set_fix(std::move(fix));
  return *this;
}

v1::Verdict FindingBuilder::Take() { return std::move(verdict_); }

}  // namespace plumbline::analysis
