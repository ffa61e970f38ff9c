// The same, and what evidence and findings are.
#pragma once
#include "cmake/precompiled/standard.h"
#include "plumbline/v1/batch.pb.h"
#include "plumbline/v1/evidence.pb.h"
#include "plumbline/v1/finding.pb.h"
