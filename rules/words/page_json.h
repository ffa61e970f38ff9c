// A finding as the page reads it, the same from plumbd and in an HTML report. Strings are valid
// UTF-8, as they came else: the page escapes. Thread-safe.
#pragma once

#include <limits>
#include <nlohmann/json.hpp>

#include "plumbline/v1/finding.pb.h"

namespace plumbline::rules {

using Json = nlohmann::ordered_json;

inline constexpr int kMostElements =
    2048;  // of a list in a witness or in details; the page says so

// Whole numbers without a fraction; not finite: "nan", "inf", "-inf", as text.
Json NumberJson(double value);
// By key: a protobuf map has no order of its own. Lists are cut after `most` elements.
Json StructJson(const google::protobuf::Struct& fields, int most = std::numeric_limits<int>::max());

// The finding of the report (plumbline.report/1), with bounded lists, its ranks as text.
Json PageFinding(const v1::Finding& finding);
// What a row of a list says of it: rule, level, strength, titles, act, command, where, steps.
Json PageRow(const v1::Finding& finding);
// What is to be copied: [{label, command}], with `fill` where words in capitals are to be filled
// in.
Json FixesJson(const v1::Finding& finding);

}  // namespace plumbline::rules
