#include "tests/rules/attack/case.h"

#include <stdexcept>

#include "tests/rules/support/spec_values.h"

namespace plumbline::rules::attack {

void Set(AttackSpec& spec, const std::string& key, const std::string& value) {
  testing::SetField({.whole = {{"seed", &spec.seed}},
                     .number = {},
                     .flag = {{"facts", &spec.facts}, {"misdeclare", &spec.misdeclare}},
                     .text = {{"family", &spec.family}},
                     .dtype = {}},
                    key, value);
}

v1::Batch AttackRun(const AttackSpec& spec) {
  for (const auto* families : {&CleanFamilies(), &LeakingFamilies()}) {
    for (const Family& family : *families) {
      if (family.name != spec.family) continue;
      const Lab lab(family.data, static_cast<uint64_t>(spec.seed));
      const Rows rows = lab.Text();
      return Record(lab, rows, family.route(lab, rows),
                    {.facts = spec.facts, .misdeclare = spec.misdeclare});
    }
  }
  throw std::runtime_error("family: no family of the attack is called " + spec.family);
}

}  // namespace plumbline::rules::attack
