//! Memory of two simulations, and a table of decimals, made anew bit for bit on any machine: additions, multiplications
//! and divisions of doubles in the order written here, no fused ones, no function of a C library.
//!
//! [`jacobi`] is the heat equation of the programs that teach parallel computing; [`hpcg`] the sparse system of the
//! benchmark of that name (Dongarra, Heroux, Luszczek 2016), laid out as its reference code does, after some
//! iterations; [`table`] what instruments log. [`noise`] is what cannot be packed.

use crate::PAGE;

/// The memory that `name` asks for: `jacobi:sine:LINES:ITERATIONS`, `jacobi:borders:LINES:ITERATIONS`,
/// `hpcg:SIDE:ITERATIONS`, `table:ROWS`, `noise:PAGES`. `None` if it asks for none of these.
#[must_use]
pub fn named(name: &str) -> Option<Vec<u8>> {
    let fields: Vec<&str> = name.split(':').collect();
    let number = |text: &str| text.parse::<usize>().ok().filter(|&n| n > 0);
    match fields[..] {
        ["jacobi", "sine", lines, iterations] => {
            Some(jacobi(number(lines)?, Source::Sine, number(iterations)?))
        }
        ["jacobi", "borders", lines, iterations] => {
            Some(jacobi(number(lines)?, Source::Borders, number(iterations)?))
        }
        ["hpcg", side, iterations] => Some(hpcg(number(side)?, number(iterations)?)),
        ["table", rows] => Some(table(number(rows)?)),
        ["noise", pages] => Some(noise(number(pages)?)),
        _ => None,
    }
}

/// What drives [`jacobi`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Nothing; the borders fall linearly from 1 at two corners to 0 at the others.
    Borders,
    /// `2 π² sin(π x) sin(π y)` inside, 0 at the borders.
    Sine,
}

/// Both matrices of `(lines + 1)²` doubles, row by row, after `iterations` sweeps of Jacobi's method, the one written
/// last first.
///
/// With `h = 1 / lines`, a sweep sets each inner element of one matrix to a quarter of the sum of its neighbours above,
/// left, right and below in the other, added in this order; then adds `π² h² / 2 · sin(π h i) · sin(π h j)` if driven
/// by the sine.
#[must_use]
pub fn jacobi(lines: usize, source: Source, iterations: usize) -> Vec<u8> {
    let side = lines + 1;
    let h = 1.0 / lines as f64;
    let mut from = vec![0f64; side * side];
    if source == Source::Borders {
        for i in 0..=lines {
            let part = h * i as f64;
            from[i * side] = 1.0 - part;
            from[i * side + lines] = part;
            from[i] = 1.0 - part;
            from[lines * side + i] = part;
        }
        from[lines * side] = 0.0;
        from[lines] = 0.0;
    }
    let mut to = from.clone();
    let sines: Vec<f64> = (0..=lines).map(|i| sin_pi(i, lines)).collect();
    let strength = std::f64::consts::PI * std::f64::consts::PI * h * h / 2.0;
    for _ in 0..iterations {
        for i in 1..lines {
            let above = &from[(i - 1) * side..][..side];
            let here = &from[i * side..][..side];
            let below = &from[(i + 1) * side..][..side];
            let row = &mut to[i * side..][..side];
            let driven = if source == Source::Sine {
                strength * sines[i]
            } else {
                0.0
            };
            for j in 1..lines {
                row[j] =
                    0.25 * (above[j] + here[j - 1] + here[j + 1] + below[j]) + driven * sines[j];
            }
        }
        std::mem::swap(&mut from, &mut to);
    }
    from.iter()
        .chain(&to)
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

/// `sin(π n / of)` for `n <= of`: the series of the sine at the angle below a right one, twelve terms, from the last.
fn sin_pi(n: usize, of: usize) -> f64 {
    let angle = std::f64::consts::PI * n.min(of - n) as f64 / of as f64;
    let square = angle * angle;
    let mut sum = 1.0;
    for term in (1..12).rev() {
        let (a, b) = (2.0 * f64::from(term), 2.0 * f64::from(term) + 1.0);
        sum = 1.0 - sum * square / (a * b);
    }
    angle * sum
}

/// The 27-point stencil on a cube of `side³` points and its vectors after `iterations` of conjugate gradients.
///
/// In this order: values of the matrix, 27 doubles a row, 26 on the diagonal and -1 beside, from the lowest neighbour
/// to the highest, unused ones 0; their columns as `i64`, then as `i32`, likewise; four arrays of addresses of the rows
/// in these (columns as `i32`, as `i64`, values, diagonal), as if they began at [`BASE`] one after the other; the
/// vectors x, b, r, p, A p, z and the exact solution.
#[must_use]
pub fn hpcg(side: usize, iterations: usize) -> Vec<u8> {
    const ROW: usize = 27;
    let rows = side * side * side;
    let mut columns: Vec<Vec<usize>> = Vec::with_capacity(rows);
    for row in 0..rows {
        let (x, y, z) = (row % side, row / side % side, row / side / side);
        let near = |at: usize| at.saturating_sub(1)..=(at + 1).min(side - 1);
        let neighbours = near(z).flat_map(|z| {
            near(y).flat_map(move |y| near(x).map(move |x| (z * side + y) * side + x))
        });
        columns.push(neighbours.collect());
    }
    let vectors = conjugate_gradients(&columns, iterations);

    let mut bytes = vec![];
    let padded = |row: &Vec<usize>| -> Vec<Option<usize>> {
        row.iter()
            .copied()
            .map(Some)
            .chain(std::iter::repeat(None))
            .take(ROW)
            .collect()
    };
    for (row, of_row) in columns.iter().enumerate() {
        let values = padded(of_row)
            .into_iter()
            .map(|column| column.map_or(0.0, |column| stencil(row, column)));
        values.for_each(|value| bytes.extend(value.to_le_bytes()));
    }
    for of_row in &columns {
        padded(of_row)
            .iter()
            .for_each(|column| bytes.extend((column.unwrap_or(0) as i64).to_le_bytes()));
    }
    for of_row in &columns {
        padded(of_row)
            .iter()
            .for_each(|column| bytes.extend((column.unwrap_or(0) as i32).to_le_bytes()));
    }
    let mut base = BASE;
    for width in [4, 8, 8] {
        (0..rows).for_each(|row| bytes.extend((base + (row * ROW * width) as u64).to_le_bytes()));
        base += (rows * ROW * width) as u64;
    }
    let values_at = BASE + (rows * ROW * 12) as u64;
    for (row, of_row) in columns.iter().enumerate() {
        let diagonal = of_row
            .iter()
            .position(|&column| column == row)
            .expect("every row has its diagonal");
        bytes.extend((values_at + ((row * ROW + diagonal) * 8) as u64).to_le_bytes());
    }
    for vector in &vectors {
        vector
            .iter()
            .for_each(|value| bytes.extend(value.to_le_bytes()));
    }
    bytes
}

/// An element of the matrix of [`hpcg`].
fn stencil(row: usize, column: usize) -> f64 {
    if row == column { 26.0 } else { -1.0 }
}

/// x, b, r, p, A p, z and the exact solution, which is 1 everywhere.
fn conjugate_gradients(columns: &[Vec<usize>], iterations: usize) -> [Vec<f64>; 7] {
    let rows = columns.len();
    let product = |vector: &[f64]| -> Vec<f64> {
        let row = |(row, columns): (usize, &Vec<usize>)| {
            columns
                .iter()
                .fold(0.0, |sum, &c| sum + stencil(row, c) * vector[c])
        };
        columns.iter().enumerate().map(row).collect()
    };
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).fold(0.0, |sum, (a, b)| sum + a * b);

    let b: Vec<f64> = columns
        .iter()
        .map(|columns| 26.0 - (columns.len() - 1) as f64)
        .collect();
    let mut x = vec![0.0; rows];
    let mut r = b.clone();
    let mut p = r.clone();
    let mut ap = vec![0.0; rows];
    let mut z = r.clone();
    let mut rho = dot(&r, &z);
    for _ in 0..iterations {
        ap = product(&p);
        let alpha = rho / dot(&p, &ap);
        for n in 0..rows {
            x[n] += alpha * p[n];
            r[n] -= alpha * ap[n];
        }
        // Preconditioned by the diagonal.
        z = r.iter().map(|r| r / 26.0).collect();
        let before = std::mem::replace(&mut rho, dot(&r, &z));
        let beta = rho / before;
        for (p, z) in p.iter_mut().zip(&z) {
            *p = z + beta * *p;
        }
    }
    [x, b, r, p, ap, z, vec![1.0; rows]]
}

/// Where the first array of [`hpcg`] is said to lie.
pub const BASE: u64 = 0x7f3a_8c00_0010;

/// `rows` lines of 100 decimals, each three digits, a point, three digits and a comma, the line ending after the last
/// comma.
///
/// In thousandths, a line begins with 500,000 + 37 for each line before it; each decimal is that before it plus a step
/// from -50 to 49, `(state >> 33) % 100 - 50`, of the generator `state = 6364136223846793005 state +
/// 1442695040888963407` modulo 2^64, which begins with state 1 and moves on before each step.
#[must_use]
pub fn table(rows: usize) -> Vec<u8> {
    let mut state = 1u64;
    let mut bytes = Vec::with_capacity(rows * 801);
    for row in 0..rows {
        let mut value = 500_000 + 37 * row as u64;
        for _ in 0..100 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            value = value + (state >> 33) % 100 - 50;
            let decimal = value % 1_000_000;
            bytes.extend(format!("{:03}.{:03},", decimal / 1000, decimal % 1000).bytes());
        }
        bytes.push(b'\n');
    }
    bytes
}

/// `pages` pages that nothing packs: the outputs of `SplitMix64` (Steele, Lea, Flood 2014) from state 0, little-endian.
#[must_use]
pub fn noise(pages: usize) -> Vec<u8> {
    let mut state = 0u64;
    let next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31).to_le_bytes()
    };
    std::iter::repeat_with(next)
        .take(pages * PAGE / 8)
        .flatten()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sines_are_sines() {
        for n in 0..=1000 {
            let exact = (std::f64::consts::PI * n as f64 / 1000.0).sin();
            assert!(
                (sin_pi(n, 1000) - exact).abs() < 1e-15,
                "{n}: {} {exact}",
                sin_pi(n, 1000)
            );
        }
    }

    // Goal: the same bytes on every machine. Method: a sum of them that was noted once.
    #[test]
    fn bytes_are_what_they_were() {
        let sum = |bytes: Vec<u8>| {
            bytes.as_chunks::<8>().0.iter().fold(0u64, |sum, word| {
                sum.rotate_left(5) ^ u64::from_le_bytes(*word)
            })
        };
        assert_eq!(sum(jacobi(40, Source::Sine, 20)), JACOBI_SINE, "sine");
        assert_eq!(
            sum(jacobi(40, Source::Borders, 20)),
            JACOBI_BORDERS,
            "borders"
        );
        assert_eq!(sum(hpcg(8, 4)), HPCG, "hpcg");
        assert_eq!(sum(table(40)), TABLE, "table");
    }

    const JACOBI_SINE: u64 = 1837711520670282204;
    const JACOBI_BORDERS: u64 = 3820066059375972783;
    const TABLE: u64 = 4110973053685191951;
    const HPCG: u64 = 10417906257984587744;
}
