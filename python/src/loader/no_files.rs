//! Replacements for `files` and `stream` in a build without the feature `files`.

use std::path::{Path, PathBuf};

use pyo3::prelude::*;
use slotline::dataset::{Context, Upcoming};
use slotline::loader::BuildError;
use slotline::rng::SharedGenerator;
use slotline::sample::{Row, RowsMut};
use slotline::{BoxError, Loader};

use super::failure;
use super::field::Field;
use super::map::{Function, Results};
use super::options::Options;
use super::source::{Blocks, Opening, Reading};

/// A dataset of files. It has no values, since this build cannot open files.
#[derive(Debug)]
pub(crate) enum Files {}

fn missing(py: Python<'_>) -> PyErr {
    failure::invalid(py, "this build of slotline has no formats of files; build it with the cargo feature `files`")
}

/// A dataset of compressed tars. It has no values, since this build cannot open files.
#[derive(Debug)]
pub(crate) enum Stream {}

impl Stream {
    pub(crate) fn open(_: Python<'_>, _: &Path, _: &NoOptions, _: usize, _: &Reading) -> PyResult<Option<Self>> {
        Ok(None)
    }

    pub(crate) fn fields(&self) -> &[Field] {
        match *self {}
    }

    pub(crate) fn names(&self) -> Vec<String> {
        match *self {}
    }

    pub(crate) fn is_remote(&self) -> bool {
        match *self {}
    }

    pub(crate) fn functions(&self) -> impl Iterator<Item = &Function> {
        std::iter::empty()
    }

    pub(crate) fn format(&self) -> String {
        match *self {}
    }

    pub(crate) fn then(&self, _: Function, _: Option<Results>) -> Self {
        match *self {}
    }

    pub(crate) fn shuffled(&self, _: usize) -> Self {
        match *self {}
    }

    pub(crate) fn loader(&self, _: &Options, _: &SharedGenerator) -> Result<Loader, BuildError> {
        match *self {}
    }
}

/// No options of formats.
pub(crate) struct NoOptions;

/// Returns the error that this build cannot open files.
pub(crate) fn options(py: Python<'_>, _: Opening) -> PyResult<NoOptions> {
    Err(missing(py))
}

impl Files {
    pub(crate) fn open(py: Python<'_>, _: &Path, _: &NoOptions, _: &Reading) -> PyResult<Self> {
        Err(missing(py))
    }

    pub(crate) fn folder(
        py: Python<'_>,
        _: &Path,
        _: Option<Vec<String>>,
        _: bool,
        _: Option<PathBuf>,
        _: &Reading,
    ) -> PyResult<Self> {
        Err(missing(py))
    }

    pub(crate) fn tokens(py: Python<'_>, _: Vec<PathBuf>, _: &Blocks, _: &Reading) -> PyResult<Self> {
        Err(missing(py))
    }

    pub(crate) fn len(&self) -> usize {
        match *self {}
    }

    pub(crate) fn fields(&self) -> &[Field] {
        match *self {}
    }

    pub(crate) fn names(&self) -> Vec<String> {
        match *self {}
    }

    pub(crate) fn classes(&self) -> Option<Vec<String>> {
        match *self {}
    }

    pub(crate) fn path(&self, _: usize) -> Option<PathBuf> {
        match *self {}
    }

    pub(crate) fn format(&self) -> String {
        match *self {}
    }

    pub(crate) fn image(&self) -> Option<String> {
        match *self {}
    }

    pub(crate) fn write(&self, _: usize, _: &mut Row<'_>, _: &mut Context) -> Result<(), BoxError> {
        match *self {}
    }

    pub(crate) fn write_fields(
        &self,
        _: impl Iterator<Item = usize>,
        _: usize,
        _: &mut Row<'_>,
        _: &mut Context,
    ) -> Result<(), BoxError> {
        match *self {}
    }

    pub(crate) fn is_remote(&self) -> bool {
        match *self {}
    }

    pub(crate) fn warnings(&self) -> Vec<String> {
        match *self {}
    }

    pub(crate) fn reads_ahead(&self) -> bool {
        match *self {}
    }

    pub(crate) fn reads_many(&self) -> bool {
        match *self {}
    }

    pub(crate) fn write_some(&self, _: &[usize], _: &mut RowsMut<'_>) -> usize {
        match *self {}
    }

    pub(crate) fn begin_pass(&self, _: Upcoming) {
        match *self {}
    }
}
