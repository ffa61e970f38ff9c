#include "rules/bases/memory_words.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace plumbline::rules {

const char* CreepWords(const Creep& creep) {
  switch (creep.kind) {
    case Creep::Kind::kFell:
      return ", it fell back by at least half of its growth";
    case Creep::Kind::kSlows:
      return creep.unclear ? ", the growth may slow down" : ", the growth slows down";
    case Creep::Kind::kEnded:
      return ", it grew earlier and has stopped";
    default:
      return "";
  }
}

v1::Verdict UnlimitedMemory(const std::string& op, const Creep& creep) {
  FindingBuilder found(v1::LEVEL_NOTE, v1::STRENGTH_STATISTICAL);
  found.Title("memory grows; its limit is not known")
      .Explain(
          absl::StrFormat("%s grew from %.4g to %.4g in steps %d to %d, %.3g times, by %.3g a step "
                          "(99 %% interval %.3g to %.3g), and the growth does not slow down.",
                          op, creep.now - creep.growth, creep.now, creep.first, creep.last,
                          creep.now / (creep.now - creep.growth), creep.slope.slope,
                          creep.slope.low, creep.slope.high))
      .Cause("memory-grows", 0.5)
      .Measured("growth per step", creep.slope.slope, "")
      .Threshold(kMuchGrowth, "times its first value")
      .Samples(static_cast<uint64_t>(creep.last - creep.first + 1))
      .FalseAlarm("measured", kFalseAlarmsOfCreep)
      .Witness("now", creep.now)
      .Witness("growth", creep.growth)
      .Fix(absl::StrCat("Set the option limit of this rule (in the unit of the values above), so "
                        "that the rule can judge the growth. ",
                        kMemoryFix));
  Put(*found.verdict().mutable_details(), "kind", "unlimited");
  return found.Take();
}

}  // namespace plumbline::rules
