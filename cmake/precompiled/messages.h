// standard.h, and the messages of evidence and findings.
#pragma once
#include "cmake/precompiled/standard.h"
#include "plumbline/v1/batch.pb.h"
#include "plumbline/v1/evidence.pb.h"
#include "plumbline/v1/finding.pb.h"
