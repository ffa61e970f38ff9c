// The number of recordings of the attack. Default: a few seeds per family; many if PLUMB_LONG=1.
// PLUMB_ATTACK_TIMES multiplies them, PLUMB_ATTACK_FIRST is the first seed, and PLUMB_ATTACK_FAMILY
// selects one family by name.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <map>
#include <string>

#include "plumbline/v1/finding.pb.h"

namespace plumbline::rules::attack {

using Counts = std::map<std::string, int>;

inline uint64_t Number(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}
inline uint64_t Seeds(uint64_t few, uint64_t many) {
  return (std::getenv("PLUMB_LONG") != nullptr ? many : few) * Number("PLUMB_ATTACK_TIMES", 1);
}
inline uint64_t FirstSeed() { return Number("PLUMB_ATTACK_FIRST", 1); }
inline bool Requested(const char* family) {
  const char* one = std::getenv("PLUMB_ATTACK_FAMILY");
  return one == nullptr || std::string(one) == family;
}

inline bool Found(const v1::Verdict& v) { return v.kind() == v1::Verdict::KIND_FINDING; }
inline bool Proved(const v1::Verdict& v) {
  return Found(v) && v.finding().strength() == v1::STRENGTH_PROVED;
}

inline void Print(const std::string& name, const Counts& counts) {
  std::cout << "  " << name << ":";
  for (const auto& [what, count] : counts) std::cout << " " << what << "=" << count;
  std::cout << "\n";
}

}  // namespace plumbline::rules::attack
