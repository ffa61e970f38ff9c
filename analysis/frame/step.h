// A closed step as rules and analyses are given it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "analysis/frame/step_cache.h"
#include "plumbline/v1/batch.pb.h"
#include "plumbline/v1/evidence.pb.h"

namespace plumbline::rules {

// One evidence item and where it came from. Pointers are valid during the call only.
struct Item {
  const v1::Source* source = nullptr;
  const v1::Evidence* evidence = nullptr;
};

// All evidence of one (run, attempt, role, site, step), every rank: sorted by (rank, call).
struct SiteStep {
  std::string run;
  uint32_t attempt = 0;
  v1::Role role = v1::ROLE_UNSPECIFIED;
  int64_t step = 0;
  v1::Site site;
  uint32_t world_size = 0;  // 0: unknown
  // Ranks of the role whose step was closed over: some of them, kNamedMissing at most; empty when
  // there are none.
  std::vector<uint32_t> missing_ranks;
  static constexpr size_t kNamedMissing = 64;
  // What one rank reported after its step had been closed over it, by itself: the other ranks'
  // items were judged then. Only for rules that ask for it (Rule::judges_late).
  bool late = false;
  std::vector<Item> items;
  // 0, or a small number that is this (role, site)'s alone in this run, in this process: what a
  // rule finds out about a site it may remember by it (site_memo.h). It is no evidence.
  uint32_t number = 0;
  StepCache cache;  // work that several rules of this step need, done once
};

// A step of one (run, attempt, role) that is closed: every site of it has been judged.
struct StepEnd {
  std::string run;
  uint32_t attempt = 0;
  v1::Role role = v1::ROLE_UNSPECIFIED;
  int64_t step = 0;
  uint32_t world_size = 0;  // 0: unknown
};

}  // namespace plumbline::rules
