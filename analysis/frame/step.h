// A closed step, as passed to rules and analyses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "analysis/frame/step_cache.h"
#include "plumbline/v1/batch.pb.h"
#include "plumbline/v1/evidence.pb.h"

namespace plumbline::analysis {

// One evidence item and its source. Pointers are valid during the call only.
struct Item {
  const v1::Source* source = nullptr;
  const v1::Evidence* evidence = nullptr;
};

// All evidence of one (run, attempt, role, site, step) from every rank, sorted by (rank, call).
struct SiteStep {
  std::string run;
  uint32_t attempt = 0;
  v1::Role role = v1::ROLE_UNSPECIFIED;
  int64_t step = 0;
  v1::Site site;
  uint32_t world_size = 0;  // 0 if not known
  // Ranks of the role for which the step was closed without waiting: some of them, at most
  // kNamedMissing. If there are none, empty.
  std::vector<uint32_t> missing_ranks;
  static constexpr size_t kNamedMissing = 64;
  // True for evidence that one rank reported after the step had been closed without this rank. The
  // step then has only this evidence, because the other ranks' items were judged before. Only for
  // rules that request it (Rule::judges_late).
  bool late = false;
  std::vector<Item> items;
  // 0, or a small number unique to this (role, site) in this run and process. A rule may use it as
  // the key of cached results on a site (site_memo.h). It is not evidence.
  uint32_t number = 0;
  StepCache cache;  // shared work of several rules on this step
};

// A closed step of one (run, attempt, role): every site of it has been judged.
struct StepEnd {
  std::string run;
  uint32_t attempt = 0;
  v1::Role role = v1::ROLE_UNSPECIFIED;
  int64_t step = 0;
  uint32_t world_size = 0;  // 0 if not known
};

}  // namespace plumbline::analysis
